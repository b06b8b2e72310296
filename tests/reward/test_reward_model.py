"""`reward_model`: scores of a classifier, never a claim to be right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadOption, Outcome, Sample, Unavailable, build

WORDS = ["<pad>", "<end>", "good", "bad", "so", "it", "is"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("one"), labels=1)


def save(folder: Path, labels: int) -> Path:
    """A one-layer classifier over a few words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None, num_labels=labels,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(folder)
    return folder


def scores(folder: Path, texts: list[str], **options: Any) -> list[float | None]:
    verifier = build("reward_model", model=str(folder), device="cpu", **options)
    found = verifier.judge([Sample(text, None, "so it is") for text in texts])
    verifier.close()
    return [verdict.score for verdict in found]


def test_scores_are_shares_and_never_called_right(folder: Path) -> None:
    verifier = build("reward_model", model=str(folder), device="cpu")
    for verdict in verifier.judge([Sample("good", None), Sample("bad", None)]):
        assert verdict.outcome is Outcome.WRONG and verdict.score is not None and 0 < verdict.score < 1
        assert verdict.reason == "learned_proxy"


def test_the_batch_a_text_is_in_does_not_matter(folder: Path) -> None:
    texts = ["good", "bad bad it is so", "it is"]
    together, alone = scores(folder, texts), scores(folder, texts, batch=1)
    assert together == pytest.approx(alone, abs=1e-6)


def test_a_model_that_fails_on_a_batch_gives_no_verdict_on_it_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = build("reward_model", model=str(folder), device="cpu", batch=2)
    real = type(verifier)._scores

    def scores_or_no_memory(self: Any, model: Any, tokenizer: Any, ids: list[list[int]]) -> list[float]:
        if len(ids[0]) > 3:
            raise RuntimeError("out of memory: tried to allocate 2 GiB")
        return real(self, model, tokenizer, ids)

    monkeypatch.setattr(type(verifier), "_scores", scores_or_no_memory)
    texts = ["good", "bad", "it is so it is", "so", "good"]
    found = verifier.judge([Sample(text, None) for text in texts])
    assert [verdict.score is None for verdict in found] == [False, False, True, True, False]
    assert found[2].outcome is Outcome.ERROR and "RuntimeError: out of memory" in found[2].detail


def test_labels_give_probabilities_that_sum_to_one(tmp_path: Path) -> None:
    saved = save(tmp_path, labels=3)
    parts = [scores(saved, ["good"], label=label)[0] or 0.0 for label in range(3)]
    assert math.isclose(sum(parts), 1.0, abs_tol=1e-5) and scores(saved, ["good"])[0] == pytest.approx(parts[2])


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    saved = save(tmp_path, labels=1)
    weights = load_file(saved / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(Unavailable, match=r"lacks 1 tensors, first `score.weight`: its scores would be random"):
        scores(saved, ["good"])


def test_long_texts_are_over_limit_and_odd_ones_are_read(folder: Path) -> None:
    assert scores(folder, ["good " * 100], max_tokens=20) == [0.0]
    assert None not in scores(folder, ["\ud800", "", "\x00"])


def test_mistakes_are_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(BadOption, match="names no classifier"):
        build("reward_model")
    with pytest.raises(Unavailable, match="no sequence classifier at"):
        build("reward_model", model=str(tmp_path / "none")).start()
    with pytest.raises(Unavailable, match="1 labels, none with the number 4"):
        build("reward_model", model=str(folder), label=4).start()


def test_grpo_verify_warns_that_it_is_a_proxy(folder: Path, tmp_path: Path) -> None:
    from grpo_cli.jobs.verify.job import VerifySettings, run
    from grpo_cli.reward.plan import from_flags

    (tmp_path / "in.jsonl").write_text('{"completion": "good"}\n')
    plan = from_flags(["reward_model"], options=[f"model={folder}", "device=cpu"])
    out = tmp_path / "out.jsonl"
    assert run(plan, VerifySettings(files=[str(tmp_path / "in.jsonl")], out=str(out))) == 0
    assert '"reason": "learned_proxy"' in out.read_text()


def test_a_proxy_is_named_in_the_warnings() -> None:
    from grpo_cli.reward.judge import proxy_warnings
    from grpo_cli.reward.plan import ScoringEntry, ScoringPlan

    plan = ScoringPlan({"taste": ScoringEntry("reward_model"), "math": ScoringEntry("math")}, "")
    assert proxy_warnings(plan.entries) == [
        "`taste` is a learned proxy: check samples by eye, a policy learns what it overrates"
    ]


def pairs(folder: Path, texts: list[str], **options: Any) -> list[Any]:
    verifier = build("reward_model", model=str(folder), device="cpu", input="pair", label=1, **options)
    found = verifier.judge([Sample(text, None, "so it is") for text in texts])
    verifier.close()
    return found


def test_a_pair_is_scored_by_premise_and_hypothesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path, labels=3)
    seen = list[Any]()
    real = type(build("reward_model", model="x"))._scores  # type: ignore[attr-defined]

    def watched(self: Any, model: Any, tokenizer: Any, ids: list[list[int]], **more: Any) -> list[float]:
        seen.extend(tokenizer.decode(one) for one in ids)
        return list(real(self, model, tokenizer, ids, **more))

    monkeypatch.setattr(type(build("reward_model", model="x")), "_scores", watched)
    one, other = pairs(
        folder,
        ["<think> good </think> The answer is bad", "<think> bad </think> The answer is bad"],
        hypothesis="it is {answer}",
    )
    assert seen == ["so it is good it is bad", "so it is bad it is bad"]
    assert one.score != other.score and one.outcome is Outcome.WRONG and one.reason == "learned_proxy"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("The answer is bad", "no_thinking"), ("<think> good", "in_thinking"), ("<think> good </think>", "no_answer")],
)
def test_a_pair_without_thinking_or_answer_scores_0_without_the_model(tmp_path: Path, text: str, reason: str) -> None:
    (found,) = pairs(save(tmp_path, labels=3), [text])
    assert (found.score, found.reason, found.outcome) == (0.0, reason, Outcome.NO_ANSWER)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "`input: pair` needs `label`"),
        ({"label": 1, "premise": "{question}"}, "`premise` has `{question}`"),
        ({"label": 1, "hypothesis": "{gold}"}, "`hypothesis` has `{gold}`"),
    ],
)
def test_a_pair_that_cannot_be_meant_is_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(BadOption, match=part.replace("{", "\\{")):
        build("reward_model", model="x", input="pair", **options)
