"""`reward_model`: the score of a local sequence classifier, for tasks that no program can verify.

It is a learned proxy, and a policy learns to exploit its errors. So its verdict is never `right` by itself (give the
verifier a `right_at` if it must be primary), its reason is `learned_proxy`, and reports warn. It is in this package
because it needs torch.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from grpo_cli.policy.prompts.chat_template import ChatTemplate
from grpo_verifiers.answers import NO_GOLD, find_answer
from grpo_verifiers.thinking import after_thinking, thought
from grpo_verifiers.verdict import Verdict, error, no_answer, over_limit, wrong
from grpo_verifiers.verifier import BadOption, Sample, Unavailable, Verifier

REASON = "learned_proxy"


PAIR_NAMES = ("prompt", "thinking", "answer", "completion")
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class RewardModelOptions:
    """Options of `reward_model`."""

    model: str = field(default="", metadata={"names": "model"})
    """Folder or hub id of a sequence classifier."""
    label: int | None = None
    """Which label's probability is the score; left out, a single logit through a sigmoid, else the last label."""
    scale: Literal["sigmoid", "clip"] = "sigmoid"
    """How a single logit becomes a score in [0, 1]: through a sigmoid, or cut off for models that give [0, 1] already."""
    max_tokens: int = 2048
    """Prompt and completion beyond this are `over_limit`, not cut: else padding would hide the end."""
    batch: int = 16
    """Texts in one forward."""
    device: Literal["auto", "cpu"] = "auto"
    """`auto` takes the first GPU where there is one."""
    input: Literal["text", "pair"] = "text"
    """`pair` is for entailment heads: two texts, `premise` and `hypothesis`, and `label` the class that means yes."""
    premise: str = "{prompt}\n{thinking}"
    """`pair` only: the first text, of `{prompt}`, `{thinking}`, `{answer}` (what follows the thinking) and `{completion}`."""
    hypothesis: str = "The final answer is {answer}"
    """`pair` only: the second text, of the same names; here `{answer}` is the stated answer alone. No thinking scores 0."""


class RewardModelVerifier(Verifier):
    """A classifier's score of prompt and completion: a learned proxy, not a verdict."""

    Options: ClassVar[type] = RewardModelOptions
    options: RewardModelOptions
    columns: tuple[str, ...] = ()
    is_learned = True

    def __init__(self, options: RewardModelOptions) -> None:
        super().__init__(options)
        if not options.model:
            raise BadOption("model", "`model` names no classifier")
        for name in ("max_tokens", "batch"):
            if getattr(options, name) < 1:
                raise BadOption(name, f"`{name}` must be at least 1")
        if options.input == "pair":
            if options.label is None:
                raise BadOption("label", "`input: pair` needs `label`: which class of the model means yes")
            for name in ("premise", "hypothesis"):
                if unknown := set(_NAME.findall(getattr(options, name))) - set(PAIR_NAMES):
                    known = ", ".join(f"`{{{one}}}`" for one in PAIR_NAMES)
                    raise BadOption(name, f"`{name}` has `{{{min(unknown)}}}`; known: {known}")
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def compile(self, row: Mapping[str, Any]) -> tuple[()]:
        """There is no gold."""
        return NO_GOLD

    def start(self) -> None:
        """Load model and tokenizer.

        Raises:
            Unavailable: they cannot be loaded, or the model has no such label.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()

    def close(self) -> None:
        """Give the memory back."""
        with self._lock:
            self._loaded = None

    def _load(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.options.model, trust_remote_code=False)
            model, loaded = AutoModelForSequenceClassification.from_pretrained(
                self.options.model, trust_remote_code=False, output_loading_info=True
            )
        except Exception as err:  # model libraries raise exceptions of any class
            raise Unavailable(
                f"no sequence classifier at `{self.options.model}`: {' '.join(str(err).split())[:160]}",
                hint="give a folder that holds one, or a hub id on a machine with a network",
            ) from err
        # a base model loads without an error, but with a random head
        if loaded["missing_keys"]:
            raise Unavailable(
                f"`{self.options.model}` lacks {len(loaded['missing_keys'])} tensors, first"
                f" `{min(loaded['missing_keys'])}`: its scores would be random",
                hint="give a model that was trained as a sequence classifier",
            )
        labels = model.config.num_labels
        if self.options.label is not None and not 0 <= self.options.label < labels:
            raise Unavailable(f"`{self.options.model}` has {labels} labels, none with the number {self.options.label}")
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"  # left padding would shift the position ids
        model.config.pad_token_id = tokenizer.pad_token_id
        use_gpu = self.options.device == "auto" and torch.cuda.is_available()
        return model.eval().to("cuda" if use_gpu else "cpu"), tokenizer

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Scores in order."""
        self.start()
        verdicts: list[Verdict] = []
        # one batch at a time: two threads on one model would double its memory, and the tokenizer is not made for it
        with self._lock:
            assert self._loaded is not None
            model, tokenizer = self._loaded
            for at in range(0, len(samples), self.options.batch):
                batch = samples[at : at + self.options.batch]
                try:
                    verdicts += self._batch(model, tokenizer, batch)
                except Exception as err:  # noqa: BLE001 - no memory, a device that is lost: not the completions' fault
                    verdicts += [error("model_failed", f"{type(err).__name__}: {err}"[:300])] * len(batch)
        return verdicts

    def _batch(self, model: Any, tokenizer: Any, samples: Sequence[Sample]) -> list[Verdict]:
        began = time.perf_counter()
        ids, types = list[list[int]](), list[list[int]]()
        alone: dict[int, Verdict] = {}
        for i, sample in enumerate(samples):
            if self.options.input == "pair":
                pair = _pair(sample, self.options)
                if isinstance(pair, Verdict):
                    alone[i] = pair
                found = {"input_ids": []} if isinstance(pair, Verdict) else tokenizer(*pair)
                ids.append(found["input_ids"])
                # of BERT's kind: 1 on the second text
                types.append(found.get("token_type_ids", [0] * len(ids[-1])))
                continue
            # a chat if the tokenizer has a template, else prompt and completion joined; lone surrogates have no tokens
            text, prompt = (t.encode("utf-8", "replace").decode() for t in (sample.completion, sample.prompt))
            if template := getattr(tokenizer, "chat_template", None):
                chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}]
                shown = ChatTemplate(template, tokenizer.special_tokens_map).render(chat, opens=False)
                ids.append(tokenizer(shown, add_special_tokens=False)["input_ids"])
            else:
                ids.append(tokenizer(f"{prompt}\n{text}" if prompt else text)["input_ids"])
        # a text that is too long gets no score: the model would score only a part of it
        fits = [i for i, one in enumerate(ids) if len(one) <= self.options.max_tokens and i not in alone]
        kinds = {"types": [types[i] for i in fits]} if types else {}
        scores = dict(zip(fits, self._scores(model, tokenizer, [ids[i] for i in fits], **kinds), strict=True))
        # the batch's time divided by its samples: the time of one cannot be measured
        seconds = (time.perf_counter() - began) / len(samples)
        verdicts: list[Verdict] = []
        for i in range(len(samples)):
            if i in alone:
                verdicts.append(alone[i])
            elif i not in scores:
                verdicts.append(over_limit("too_long"))
            elif not math.isfinite(scores[i]):
                verdicts.append(error("non_finite", "the classifier's logits are not finite", seconds))
            else:
                # never right by itself: a high score is an opinion
                verdicts.append(wrong(None, REASON, seconds, score=scores[i]))
        return verdicts

    def _scores(
        self, model: Any, tokenizer: Any, ids: list[list[int]], types: list[list[int]] | None = None
    ) -> list[float]:
        import torch

        if not ids:
            return []
        batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(model.device)
        more = {}
        if types is not None and getattr(model.config, "type_vocab_size", 0) > 1:
            width = batch["input_ids"].shape[1]
            more["token_type_ids"] = torch.tensor([one + [0] * (width - len(one)) for one in types]).to(model.device)
        with torch.inference_mode():
            logits_NL = model(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **more
            ).logits.float()
        if logits_NL.shape[1] == 1:
            single_N = logits_NL[:, 0]
            scores_N = single_N.sigmoid() if self.options.scale == "sigmoid" else single_N.clamp(0.0, 1.0)
        else:
            label = self.options.label if self.options.label is not None else logits_NL.shape[1] - 1
            scores_N = logits_NL.softmax(dim=1)[:, label]
        found: list[float] = scores_N.tolist()
        return found


def _pair(sample: Sample, options: RewardModelOptions) -> tuple[str, str] | Verdict:
    """Premise and hypothesis of a sample; a verdict of 0 where there is no thinking or no answer to compare."""
    read, thinking = after_thinking(sample.turn), thought(sample.turn)
    if not thinking:
        # an answer without a thinking would agree with it best of all
        return no_answer("in_thinking" if read.is_open else "no_thinking")
    said = find_answer(read.text, "box_or_line").texts
    if not said:
        return no_answer("no_answer")
    texts = {"prompt": sample.prompt, "thinking": thinking.strip(), "completion": sample.completion}
    return (
        _filled(options.premise, texts | {"answer": read.text}),
        _filled(options.hypothesis, texts | {"answer": " or ".join(said)}),
    )


def _filled(template: str, texts: Mapping[str, str]) -> str:
    return _NAME.sub(lambda name: texts[name[1]], template).encode("utf-8", "replace").decode()
