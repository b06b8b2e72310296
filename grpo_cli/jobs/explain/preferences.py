"""What `grpo explain` says of preferences and of chains: the methods, and each loss with the trap that it has."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

LEGEND = (
    "w, l winner and loser; d log p - log p of the model that drew them, summed over the answer; m mean log p a token;"
    " |y| tokens of an answer"
)
WIDTH = 100


class LossPage(NamedTuple):
    """One loss in words."""

    formula: str
    source: str
    note: str


ABOUT: dict[str, LossPage] = {
    "dpo": LossPage(
        "loss = -log sigmoid(beta (d_w - d_l))",
        "DPO, arXiv 2305.18290; TRL's DPOTrainer",
        "the probability of winners may fall too, if that of losers falls faster: `chosen/logps` shows it, `irpo` prevents it",
    ),
    "ipo": LossPage(
        "loss = (d_w / |w| - d_l / |l| - 1 / (2 beta))^2",
        "IPO, arXiv 2310.12036; TRL's DPOTrainer",
        "by token, as TRL and its authors compute it; the paper's letter, and OpenRLHF, sum over the answer. `beta` is its tau",
    ),
    "irpo": LossPage(
        "loss = -log sigmoid(beta (d_w - d_l)) + sft NLL(w)",
        "IRPO, arXiv 2404.19733; TRL's DPOTrainer",
        "made for rounds: `train.steps` above 1. The NLL is a mean over the tokens of a batch (TRL), not over answers (paper)",
    ),
    "kto": LossPage(
        "right: 1 - sigmoid(beta (d - z));  wrong: 1 - sigmoid(beta (z - d));  z = max(0, mean d of answers to other prompts)",
        "KTO, arXiv 2402.01306; TRL's KTOTrainer",
        "takes every whole, judged answer, no pairs. Answers of one row are kept apart, since z is taken from neighbours, and"
        " weights bring right : wrong into [1, 4/3]",
    ),
    "orpo": LossPage(
        "loss = NLL(w) - beta log sigmoid(log odds(m_w) - log odds(m_l));  odds(m) = e^m / (1 - e^m)",
        "ORPO, arXiv 2403.07691; TRL's ORPOTrainer",
        "no reference. The NLL covers prompt and answer, as TRL has it",
    ),
    "simpo": LossPage(
        "loss = -log sigmoid(beta (m_w - m_l) - gamma)",
        "SimPO, arXiv 2405.14734; TRL's CPOTrainer",
        "no reference: nothing holds the model near its start. `beta` is 2 to 10, since m is a mean over tokens; CPO's own"
        " loss on winners is off",
    ),
}

METHOD = """\
`train.method: prefer` learns from pairs of a right and a wrong answer to one prompt. A step is a round: it draws
`sample.prompts` x `sample.group` completions, judges them, makes pairs of them, and goes `prefer.epochs` times over these with
`prefer.loss`; the reference is the model that drew them, and optimizer and schedule begin anew. `train.steps` above 1 is
iterated preference learning.

Pairs: winners are right, losers wrong by a verdict; both whole, of distinct texts, their lengths at most `prefer.length_gap`
apart; likest lengths first, each sample in at most 2 pairs, at most `prefer.pairs_a_row` a row. `grpo pairs` makes the same of a
finished run. `prefer.data: pairs.jsonl` learns from such a file and draws nothing; `kto` takes both halves of its pairs.

A run keeps what every run keeps: samples, evaluations, checkpoints between steps, exact resume. `train.control: shuffled` is the
placebo: labels are dealt out anew inside each row, also of a file."""


SFT = """\
`train.method: sft` trains on demonstrations: the phases of `sft`, written as those of `warmup`. What a phase shows is a template
over its rows; left out, it is the column `completion`, which the source `run:NAME` has: the right, whole, distinct samples of
a run, at most `a_row` of each row (`only`, `shortest`, `language`, `repetition` and `since` choose among them), every row as
often as any other. Samples of held-out rows are refused. The run is measured before and after."""

STAGES = """\
`stages` is a chain of runs in one recipe: a list of stages, each with a `name` and the keys that are its own. A stage is `rl`
(the default), `prefer` or `sft` by its `train.method`; it starts from the best checkpoint of the last stage on held-out rows
(`from: best`), its last one (`from: last`), or the recipe's own model and warm-up (`from: base`). Optimizer, schedule and the
reference of a KL are each stage's own. `run:NAME` means the samples of an earlier stage.

RUN/stage-2-NAME/ is a run like any other; RUN itself holds the metrics and samples of all stages on one axis of steps, for
`grpo report RUN`, and `run.json` says the held-out score before and after each. `--resume` goes on in any stage. Whole weights
are handed on (no `model.lora`), by one process. Shipped: `r1` and `r1-zero`."""

METHODS = {"prefer": METHOD, "sft": SFT, "stages": STAGES}


def names() -> list[str]:
    """The methods, and the losses of preferences."""
    return [*METHODS, *ABOUT]


def describe(name: str) -> dict[str, Any]:
    """Formula, source and note of a loss; of a method what it is."""
    if name in METHODS:
        losses = {"losses": list(ABOUT)} if name == "prefer" else {}
        return {"preference": name, "summary": METHODS[name], **losses}
    return {"preference": name, **ABOUT[name]._asdict(), "set": f"train.method: prefer, prefer.loss: {name}"}


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    name = described["preference"]
    if name in METHODS:
        losses = f"\n\nlosses   {', '.join(described['losses'])}" if "losses" in described else ""
        return f"{name}\n\n{described['summary']}{losses}"
    lines = [name, "", *described["formula"].split(";  "), *textwrap.wrap(f"({LEGEND})", WIDTH), ""]
    lines.append(f"source  {described['source']}")
    lines += textwrap.wrap(described["note"], WIDTH, initial_indent="note    ", subsequent_indent=" " * 8)
    return "\n".join([*lines, "", f"set with `train.method: prefer` and `prefer.loss: {name}`"])
