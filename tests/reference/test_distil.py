"""`train.method: distil` through the real trainer, beside float64 loops over single answers that share no code with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_cli.policy.model import byte_tokenizer
from tests.reference.case import Case
from tests.reference.compare import _answers, _micro, apart, in_order
from tests.reference.drive import Seen, recipe_of, run_here, run_ranks, write_world
from tests.reference.families import write_checkpoint
from tests.reference.formulas import group_advantages, token_losses
from tests.reference.policy import Plain, Said

VERIFIER = """\
import zlib


def score(completion, kind):
    number = zlib.crc32(completion.encode("utf-8", "surrogatepass"))
    if kind == "lost" and number % 3 == 0:
        return {"outcome": "error", "reason": "lost"}
    won = kind != "flat" and number % 4 == 0
    return {"score": float(won), "reason": "no", "detail": f"sum of bytes {number % 7}"}
"""
TOLD = {"reason": "An earlier answer to this was wrong: sum of bytes {}.", "sibling": "A right answer to this is:\n{}"}


def judged(text: str, kind: str) -> tuple[bool | None, int]:
    """What the verifier says; None for no verdict."""
    import zlib

    number = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    if kind == "lost" and number % 3 == 0:
        return None, 0
    return kind != "flat" and number % 4 == 0, number % 7


def recipe(folder: Path, name: str, spec: dict[str, Any], **changes: Any) -> Any:
    write_world(folder)
    (folder / "own.py").write_text(VERIFIER)
    train = {"method": "distil", "steps": 3, "std_ddof": 1} | changes.pop("train", {})
    verify = {"v": {"kind": "python", "function": f"{folder}/own.py:score", "workers": 1, "public_detail": True}}
    model = {"path": str(write_checkpoint("llama", folder, max_position_embeddings=256))}  # its answers end
    return recipe_of(folder, name, {"train": train, "distil": spec, "verify": verify, "model": model, **changes})


def hints_of(records: list[dict[str, Any]], said: list[Said], spec: dict[str, Any], size: int) -> list[str | None]:
    """What the teacher of each sample is told, from the texts of the answers alone."""
    texts = byte_tokenizer().batch_decode([one.answer for one in said], skip_special_tokens=True)
    found: list[str | None] = []
    for start in range(0, len(said), size):
        group = range(start, start + size)
        verdicts = [judged(texts[i], records[i]["kind"]) for i in group]
        known = [ok for ok, _ in verdicts if ok is not None]
        dead = len(known) < 2 or len(set(known)) < 2
        for place, (ok, number) in zip(group, verdicts, strict=True):
            when = spec.get("when", "dead")
            out = said[place].cut or ok is None or (when != "all" and ok) or (when == "dead" and not dead)
            right = [texts[i] for i, (won, _) in zip(group, verdicts, strict=True) if won and i != place]
            hint = None
            for teacher in spec["teacher"]:
                if teacher == "prompt":
                    hint = ""
                elif teacher == "sibling" and right:
                    hint = TOLD["sibling"].format(right[0].strip())
                elif teacher == "reason" and ok is False:
                    hint = TOLD["reason"].format(number)
                if hint is not None:
                    break
            found.append(None if out else hint)
    return found


def asked(one: Said, question: str, hint: str) -> Said:
    """The same answer behind the teacher's prompt."""
    tokenizer = byte_tokenizer()
    text = tokenizer.decode(list(one.prompt), skip_special_tokens=False)
    assert text.count(question) == 1
    told = text.replace(question, f"{hint}\n\n{question}") if hint else text
    return Said(tuple(tokenizer(told, add_special_tokens=False).input_ids), one.answer, one.mask, one.cut)


def whole(model: Plain, one: Said) -> Tensor:
    """(T, V) log-probs of every word at each token of the answer."""
    logits = model.model(input_ids=torch.tensor([[*one.prompt, *one.answer]]), use_cache=False).logits[0]
    return (logits[len(one.prompt) - 1 : -1] / model.temperature).log_softmax(-1)


def compared(p: Tensor, q: Tensor, kept: Tensor, direction: str) -> Tensor:
    """The divergence of two distributions of which all words but those kept are one."""
    rest = [torch.log(1 - x[kept].exp().sum()) for x in (p, q)]
    one, other = (torch.cat([x[kept], r[None]]) for x, r in zip((p, q), rest, strict=True))
    if direction == "forward":
        return (other.exp() * (other - one)).sum()
    if direction == "reverse":
        return (one.exp() * (one - other)).sum()
    middle = ((one.exp() + other.exp()) / 2).log()
    return (one.exp() * (one - middle) + other.exp() * (other - middle)).sum() / 2


def worst(ranks: list[Seen], made: Any, spec: dict[str, Any]) -> tuple[float, int]:
    """The largest error of a gradient, and how many rows had a teacher."""
    case = Case.of(made)
    policy, teacher = (Plain(ranks[0].config, case.temperature) for _ in range(2))
    start = ranks[0].updates[0].weights
    average = {name: value.double() for name, value in start.items()}
    found, taught, size, mix = 0.0, 0, case.group, spec.get("mix", 1.0)
    for batch in range(len(ranks[0].said)):
        updates = [u for u in ranks[0].updates if u.batch == batch]
        said = in_order(ranks, batch, [one for seen in ranks for one in seen.said[batch]])
        records = ranks[0].records[batch]
        if not updates:
            continue
        before = updates[0].weights
        if batch:  # the average moves by what the step before made of the weights
            average = {
                n: (1 - spec.get("rate", 0.05)) * a + spec.get("rate", 0.05) * before[n].double()
                for n, a in average.items()
            }
        teacher.take({"live": before, "base": start, "ema": average}[spec.get("weights", "ema")])
        policy.take(before)
        hints = hints_of(records, said, spec, size)
        taught += sum(hint is not None for hint in hints)
        old = policy.logps(said)
        texts = byte_tokenizer().batch_decode([one.answer for one in said], skip_special_tokens=True)
        rewards = [
            {True: 1.0, False: 0.0, None: math.nan}[judged(t, r["kind"])[0]]
            for t, r in zip(texts, records, strict=True)
        ]
        starts = range(0, len(said), size)
        own = [a for group in group_advantages([rewards[i : i + size] for i in starts], case.method) for a in group]
        signal = [any(own[i // size * size : i // size * size + size]) for i in range(len(said))]
        share = 1.0 if spec.get("when", "dead") == "dead" else 1 - mix
        advantages, places = [], []
        for i, (one, hint, a) in enumerate(zip(said, hints, own, strict=True)):
            behind = None if hint is None else asked(one, records[i]["question"], hint)
            gap = [0.0] * len(one.own)
            if behind is not None and spec.get("loss", "sampled") == "sampled":
                gap = [q - p for q, p in zip(teacher.logps([behind])[0], old[i], strict=True)]
            advantages.append([share * a + mix * g for g in gap])
            kept = None
            if behind is not None and spec.get("loss") == "topk":
                with torch.no_grad():
                    p, q = whole(policy, one), whole(teacher, behind)
                kept = [(row.topk(spec["k"]).indices, other) for row, other in zip(p, q, strict=True)]
            places.append(kept)
        active = [hint is not None or (s and share > 0) for hint, s in zip(hints, signal, strict=True)]
        for at, update in enumerate(updates):
            policy.take(update.weights)
            answers = _answers(policy, said, old, old, advantages, [False] * len(said), case)
            tokens = sum(len(answer.lp) for answer, on in zip(answers, active, strict=True) if on)
            loss = torch.zeros((), dtype=torch.float64)
            for i in (p for rows in _micro(ranks, batch, at) for p in rows):
                if not active[i]:
                    continue
                loss = loss + torch.stack(token_losses(answers[i], case.method)).sum() / tokens
                if (kept := places[i]) is not None:
                    now = whole(policy, said[i])
                    terms = [
                        compared(row, q, ids, spec.get("direction", "reverse"))
                        for row, (ids, q) in zip(now, kept, strict=True)
                    ]
                    loss = loss + mix * torch.stack(terms).sum() / tokens
            want = policy.gradient(loss)
            for seen in ranks:
                got = [u for u in seen.updates if u.batch == batch][at].gradients
                found = max(found, apart(got, want))
    return found, taught


SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reasons of dead groups": ({"teacher": ["sibling", "reason"]}, {}),
    "siblings, mixed": ({"teacher": ["sibling"], "when": "wrong", "mix": 0.3, "weights": "live"}, {}),
    "all, from the start": ({"teacher": ["sibling", "reason"], "when": "all", "mix": 0.5, "weights": "base"}, {"micro_batch": 4}),
    "two passes": ({"teacher": ["reason"], "when": "wrong", "rate": 0.3}, {"inner_epochs": 2}),
    "top-3 reverse": ({"teacher": ["reason"], "loss": "topk", "k": 3, "weights": "live"}, {}),
    "top-5 forward": ({"teacher": ["reason"], "loss": "topk", "k": 5, "direction": "forward", "when": "wrong", "mix": 0.6}, {"micro_batch": 4}),
    "top-4 jsd": ({"teacher": ["reason"], "loss": "topk", "k": 4, "direction": "jsd", "when": "all"}, {"inner_epochs": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_every_gradient_is_that_of_the_formula(name: str, tmp_path: Path) -> None:
    spec, more = SPECS[name]
    sample = {"max_tokens": 12, **{k: v for k, v in more.items() if k == "micro_batch"}}
    train = {k: v for k, v in more.items() if k != "micro_batch"}
    made = recipe(tmp_path, "one", spec, sample=sample, train=train)
    seen = run_here(made, tmp_path)
    error, taught = worst([seen], made, spec)
    assert taught > 5 and error <= (3e-6 if "inner_epochs" in more else 2e-6), (error, taught)
    shown = [line["distil/rows"] for line in seen.metrics]
    assert sum(shown) * 20 == pytest.approx(taught)
    assert all(line["distil/leak"] == 0 for line in seen.metrics)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [{}, {"loss": "topk", "k": 3}])
def test_two_ranks_are_one(loss: dict[str, Any], tmp_path: Path) -> None:
    spec = {"teacher": ["sibling", "reason"], "when": "wrong", "mix": 0.5} | loss
    made = recipe(tmp_path, "two", spec, sample={"max_tokens": 12, "micro_batch": 5})
    data = made.model_dump(by_alias=True)
    changes = {key: data[key] for key in ("train", "distil", "verify", "sample", "model")}
    error, taught = worst(run_ranks(tmp_path, "two", changes), made, spec)
    assert taught > 5 and error <= 2e-6, (error, taught)


def test_an_equal_teacher_moves_nothing(tmp_path: Path) -> None:
    """The policy behind its own prompt: advantages of exactly 0, no update, weights equal bit for bit."""
    made = recipe(
        tmp_path, "same", {"teacher": ["prompt"], "when": "all", "weights": "base"}, sample={"max_tokens": 12}
    )
    seen = run_here(made, tmp_path)
    start = seen.updates[0].weights
    assert all(torch.equal(update.weights[n], start[n]) for update in seen.updates for n in start)
    assert all(
        line["distil/kl"] == 0 and line["distil/rows"] > 0 and line["updates/empty"] == 1 for line in seen.metrics
    )
