"""The methods of `train.algorithm` and `train.method`, and the losses of preferences, for `grpo explain`.

`ALGORITHMS` and `LOSSES` hold the formula, source and pitfall of each; the fields that an algorithm sets come from its
preset. `describe_…` returns a method as data, the object of `--json`, and `render_…` makes the text of that.
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from grpo_cli.recipe.widening import PRESETS

WIDTH = 100
LEGEND = (
    "r ratio of the policy to the one that sampled, A advantage, G group, |y| tokens of an answer, sg stop-gradient"
)
LOSS_LEGEND = (
    "w, l winner and loser; d log p - log p of the model that drew them, summed over the answer; m mean log p a token;"
    " |y| tokens of an answer"
)


class MethodPage(NamedTuple):
    """One method in words."""

    formula: str
    source: str
    note: str = ""


ALGORITHMS: dict[str, MethodPage] = {
    "default": MethodPage(
        "loss = -sum min(r A, clip(r, .8, 1.28) A) / tokens of the batch;  A = (reward - mean) / std",
        "GRPO (arXiv 2402.03300) with DAPO's token mean and upper clip (arXiv 2503.14476)",
        "groups without signal are left out before the forward pass, which changes no gradient; the KL is measured, "
        "not penalised",
    ),
    "grpo": MethodPage(
        "loss = -mean over answers of the mean over tokens of min(r A, clip(r, .8, 1.2) A) + beta k3",
        "DeepSeekMath, arXiv 2402.03300",
        "plain k3 has the gradient of KL(reference || policy)",
    ),
    "grpo_k1": MethodPage(
        "loss = -mean over tokens of min(r A, clip(r, .8, 1.2) A) + beta (log p - log p_ref)",
        "GRPO as often taught: std with n - 1, mean over all tokens, k1 in the loss",
        "the expected gradient of this KL term is zero (E[grad log p] = 0): it anchors nothing; for a pull towards "
        "the start choose `kl.estimator: k2` or `k3_corrected`",
    ),
    "dr_grpo": MethodPage(
        "loss = -sum min(r A, clip(r) A) / (answers x max_tokens);  A = reward - mean",
        "Dr. GRPO, arXiv 2503.20783",
        "no preference for long wrong answers; advantages are about half as large, so raise `lr` to compare",
    ),
    "dapo": MethodPage(
        "loss = -sum min(r A, clip(r, .8, 1.28) A) / tokens;  groups without signal are drawn again;  "
        "reward += 0 to -1 over the last fifth of max_tokens",
        "DAPO, arXiv 2503.14476",
        "saves updates, not generated tokens: `resample/…` counts what is thrown away",
    ),
    "gspo": MethodPage(
        "s = exp(mean over tokens of log r);  loss = -mean over answers of min(s A, clip(s, 1 - 3e-4, 1 + 4e-4) A)",
        "GSPO, arXiv 2507.18071",
        "differs from GRPO only with several updates a batch; the clip is a thousand times narrower",
    ),
    "gspo_token": MethodPage(
        "s_t = sg[s] p_t / sg[p_t];  loss = -mean over answers of the mean over tokens of min(s_t A_t, clip(s_t) A_t)",
        "GSPO-token, arXiv 2507.18071",
        "equals `gspo` while A is the same for all tokens of an answer",
    ),
    "cispo": MethodPage(
        "loss = -sum sg[min(r, cap)] A log p / tokens",
        "CISPO, MiniMax-M1, arXiv 2506.13585",
        "`clip.cap` is the absolute cap of the ratio (TRL's convention); others mean 1 + high. No token loses its gradient",
    ),
    "sapo": MethodPage(
        "loss = -mean over answers of the mean over tokens of A 4 sigmoid(tau (r - 1)) / tau;  tau 1 for A > 0, else 1.05",
        "SAPO, arXiv 2511.20347",
        "the logged loss at r = 1 is -2A, so loss curves of different methods do not compare",
    ),
    "rloo": MethodPage(
        "A = reward - beta KL(answer) - mean of the others;  loss = -sum min(r A, clip(r) A) / (answers x max_tokens)",
        "RLOO, arXiv 2402.14740",
        "the KL of the whole answer is taken off its reward (k1); TRL's own RLOO uses the ratio of the whole answer",
    ),
    "reinforce_pp": MethodPage(
        "A = (reward - group mean) / std of the batch;  loss = -sum min(r A, clip(r) A) / tokens",
        "REINFORCE++ with a group baseline, arXiv 2501.03262",
        "useful with small groups: the std of a batch is less noisy than that of a few numbers",
    ),
    "gigpo": MethodPage(
        "A = (R - mean R of the group) + weight (G - mean G of the turns that saw the same state);  "
        "G_t = sum over k of gamma^k r_(t+k), k turns later;  loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens",
        "GiGPO, arXiv 2505.10978, in its authors' default mode: neither part is divided by a deviation",
        "for episodes of an `environment` whose states come back; with `scale: group` each part is divided by its own deviation, "
        "the paper's other mode",
    ),
    "max_rl": MethodPage(
        "A = (reward - mean) / mean, 0 where the mean is 0;  loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens",
        "MaxRL, arXiv 2602.02710, by the code of prime-rl; the paper's text was not read",
        "its gradient is p' sum over k < G - 1 of (1 - p)^k: of order G - 1 in the rare prompts (prime-rl's text says G). "
        "Rewards below 0 are refused. Advantages reach G - 1: lower `lr` to compare",
    ),
    "dppo": MethodPage(
        "A = (reward - mean) / std;  masked where p - p_old > delta and A > 0, or p_old - p > delta and A < 0;  "
        "loss = sum (-A r + pull log^2 r) / tokens",
        "DPPO, arXiv 2602.04879, in the form of prime-rl; the paper's text was not read",
        "the mask looks at the probability, so a rare token may grow by more than a ratio of 1.28. `ratio_clip: kl` masks by the divergence of "
        "token against rest; its .05 is ours. Matters only with `inner_epochs` or `mini_batches` above 1",
    ),
    "gmpo": MethodPage(
        "s = exp(mean over tokens of log r, cut at .4 where A > 0 and at -.4 where A < 0);  loss = -mean over answers of s A",
        "GMPO, arXiv 2507.20673; TRL's experimental trainer",
        "bounds are of log ratios (`clip`), and only on the side that the advantage pushes to. Differs from GSPO by these; matters only "
        "with several updates a batch",
    ),
    "gdpo": MethodPage(
        "A = sum over verifiers of weight (score - mean) / std of the group, less the batch's mean, over the batch's std;  "
        "loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens",
        "GDPO, arXiv 2601.05242",
        "for several verifiers: with one it is GRPO with another scale. A group with equal outcomes gets 0 (`train.alive_by`), which the paper "
        "does not have: there a small weight trains it at full size",
    ),
    "pass_k": MethodPage(
        "A = (mean over subsets with this sample of their best - R) / S;  R, S mean and std of the best of k samples over all subsets;  "
        "loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens",
        "after pass@k training, arXiv 2503.19595, averaged over all subsets (ours); verl pays the best sample alone, best - second",
        "a prompt of which no subset of `pass_k` samples fails teaches nothing. k 1 is GRPO with `std_ddof: 0`. For coverage: it trades the "
        "mean score for pass@k",
    ),
    "opo": MethodPage(
        "A = reward - sum of len x reward / sum of len over the group;  loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens",
        "OPO, arXiv 2505.23585; verl's code",
        "the baseline of least variance if the gradient of an answer grows with its length; advantages of a group do not sum to 0",
    ),
    "otb": MethodPage(
        "w_t = 1 - 2 p_t + sum p^2;  W_t = w_1 + ... + w_t;  B_t = sum reward W_t / sum W_t over the answers of the group that go on at t;  "
        "A_t = reward - B_t;  loss = -sum min(r A_t, clip(r, .8, 1.2) A_t) / tokens",
        "optimal token baseline, arXiv 2602.07078; verl's code",
        "costs one more forward pass over the batch, with the whole distribution of each token. The last token of the longest answer has "
        "nothing to compare with and gets 0",
    ),
    "vespo": MethodPage(
        "w = p(y) / p_old(y) of the whole answer;  phi = w^k exp(lambda (1 - w)), k 2 and lambda 3 where A >= 0, else 3 and 2;  "
        "loss = -sum sg[phi] A log p / tokens",
        "VESPO, arXiv 2602.10693; TRL's loss",
        "a weight of 1 where nothing has moved, and near 0 far away on either side; matters only with several updates a batch",
    ),
    "luspo": MethodPage(
        "s = exp(mean over tokens of log r);  loss = -mean over answers of |y| min(s A, clip(s, 1 - 3e-4, 1 + 4e-4) A)",
        "LUSPO, arXiv 2602.05261; TRL's loss",
        "GSPO whose answers count by their length; TRL only warns where the ratio is not the answer's, here it is refused. A long answer "
        "gets a large step: lower `lr` to compare",
    ),
    "ppo": MethodPage(
        "d_t = r_t + gamma V_(t+1) - V_t;  A_t = d_t + gamma lambda A_(t+1), whitened over the tokens of the batch;  "
        "loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens;  critic: .5 mean max((V - R)^2, (clip(V) - R)^2) over the running deviation of R squared, R = A + V",
        "PPO, arXiv 1707.06347, with GAE, arXiv 1506.02438; `lambda: adaptive` and `positive` are VAPO's, arXiv 2504.05118",
        "a critic (`train.critic`) learns apart and gives each token its advantage; it warms up before the policy moves; "
        "`sample.group` may be 1; `kl.beta` is taken off the reward of each token",
    ),
}

BESIDE: dict[str, tuple[str, MethodPage]] = {
    "n_grpo": (
        "sample.mix: {rate: 0.1}",
        MethodPage(
            "v = argmax z, C = v and the rows of E nearest to E[v] by cosine, a = softmax of z / temperature over C;  "
            "with probability `rate` the input of the next step is sum over C of a_c E[c]",
            "N-GRPO, arXiv 2606.10768, and its code",
            "for samples that differ more, not for a better mean. The paper's own tables: pass@32 rose (1.5B 77.4 -> 79.2, 7B 81.9 -> "
            "84.2), mean@32 did not (53.6 -> 54.1, 67.2 -> 66.6), and plain models lose mean@32: Llama-3.2-1B 15.8 -> 13.3, "
            "Qwen3-1.7B-Base 37.9 -> 29.0; no seeds. Here the token that was sampled is written, whose gradient is exact but for the "
            "path through a; the paper writes v (`written: anchor`), which nobody drew and which stays out of the loss here. Off in "
            "evaluation and behind `until`. The paper's k is 3, the released configuration's 2",
        ),
    ),
    "split": (
        "train.reward_combine: split",
        MethodPage(
            "A = sum over parts of weight x (part - mean of its group) / std of its group;  the first part is the reward",
            "HRAS of CORA, arXiv 2606.14691; its code is not public, and its constants are ours",
            "a scale of a part's scores cancels, so schedules act on its weight; parts behind the first are 0 where the outcomes of a "
            "group are equal (`train.alive_by`), or a group that is all wrong would be paid for agreeing with itself. Verifiers of "
            "those parts have weight 0 in the reward. Watch `split/inverted` and `consistency/right_inconsistent`. The paper's table: "
            "MathVista 67.9 -> 69.3, inconsistent answers 15.8 -> 8.3 %, without seeds",
        ),
    ),
}
"""Methods that are set beside `train.algorithm`: the line that sets each, and its page."""


LOSSES: dict[str, MethodPage] = {
    "dpo": MethodPage(
        "loss = -log sigmoid(beta (d_w - d_l))",
        "DPO, arXiv 2305.18290; TRL's DPOTrainer",
        "the probability of winners may fall too, if that of losers falls faster: `chosen/logps` shows it, `irpo` prevents it",
    ),
    "ipo": MethodPage(
        "loss = (d_w / |w| - d_l / |l| - 1 / (2 beta))^2",
        "IPO, arXiv 2310.12036; TRL's DPOTrainer",
        "by token, as TRL and its authors compute it; the paper's letter, and OpenRLHF, sum over the answer. `beta` is its tau",
    ),
    "irpo": MethodPage(
        "loss = -log sigmoid(beta (d_w - d_l)) + sft NLL(w)",
        "IRPO, arXiv 2404.19733; TRL's DPOTrainer",
        "made for rounds: `train.steps` above 1. The NLL is a mean over the tokens of a batch (TRL), not over answers (paper)",
    ),
    "kto": MethodPage(
        "right: 1 - sigmoid(beta (d - z));  wrong: 1 - sigmoid(beta (z - d));  z = max(0, mean d of answers to other prompts)",
        "KTO, arXiv 2402.01306; TRL's KTOTrainer",
        "takes every whole, judged answer, no pairs. Answers of one row are kept apart, since z is taken from neighbours, and"
        " weights bring right : wrong into [1, 4/3]",
    ),
    "orpo": MethodPage(
        "loss = NLL(w) - beta log sigmoid(log odds(m_w) - log odds(m_l));  odds(m) = e^m / (1 - e^m)",
        "ORPO, arXiv 2403.07691; TRL's ORPOTrainer",
        "no reference. The NLL covers prompt and answer, as TRL has it",
    ),
    "simpo": MethodPage(
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

DISTIL = """\
`train.method: distil` learns also from a teacher: the policy itself behind a prompt that says more, or another model with the same
tokenizer. With p the policy, q the teacher and c the hint, over the tokens y that the policy sampled,

    loss: sampled   A_t = (1 - mix) A + mix (log q(y_t | x, c, y_<t) - log p(y_t | x, y_<t))
    loss: topk      loss += mix D(p, q) over the k likeliest tokens of p and one for all others, a lower bound; `direction` names D

In the mean over samples the first is the gradient of KL(p || q) at each token. Both are of tokens: what a token does to later ones has
no gradient. Only rows with signal or a teacher are in the loss's mean. `when: dead`, the default, asks a teacher where rewards say
nothing. Samples that were cut have none, right ones only with `when: all`.

`distil.teacher`: the `reason` of the verdict, a right `sibling`, the `gold` (the student learns to state answers it cannot derive), the
`prompt` alone (a pull to the teacher's weights), or a model. Of a reason only the code is shown, unless the verifier declares its
details public; one that holds the gold is replaced and counted (`distil/leak`). `weights`: `ema`, `live` or `base`. The placebo is
`train.control: shuffled`: hints are dealt out anew.

Sources: on-policy distillation, SDPO (its code; TRL's experimental trainer), RLCSD 2606.11709 for `contrast`; their full texts were not
read. Reported there: better than GRPO at 7B, equal at 8B, worse at 1.5B, against a GRPO without the anchor that an average is."""

METHODS = {"prefer": METHOD, "distil": DISTIL, "sft": SFT, "stages": STAGES}


def describe_algorithm(name: str) -> dict[str, Any]:
    """Formula, source, note and the fields that a preset sets, those that differ from `default` marked."""
    preset, base = flat_preset(PRESETS[name]), flat_preset(PRESETS["default"])
    differs = [key for key in preset if preset[key] != base.get(key)]
    return {"algorithm": name, **ALGORITHMS[name]._asdict(), "sets": preset, "differs": differs}


def render_algorithm(described: dict[str, Any]) -> str:
    """The text form of `describe_algorithm`."""
    lines = [described["algorithm"], "", *described["formula"].split(";  "), f"({LEGEND})", ""]
    lines.append(f"source  {described['source']}")
    if described["note"]:
        lines.append(f"note    {described['note']}")
    lines += ["", "sets (* unlike `default`)"]
    for key, value in described["sets"].items():
        shown = "null" if value is None else str(value).lower() if value is False else value
        lines.append(f"  {'*' if key in described['differs'] else ' '} train.{key}: {shown}")
    return "\n".join(lines)


def describe_beside(name: str) -> dict[str, Any]:
    """Formula, source and note of a method that stands beside the algorithm, and the line that sets it."""
    line, page = BESIDE[name]
    return {"beside": name, **page._asdict(), "set": line}


def render_beside(described: dict[str, Any]) -> str:
    """The text form of `describe_beside`."""
    lines = [described["beside"], "", *described["formula"].split(";  "), "", f"source  {described['source']}"]
    lines += textwrap.wrap(described["note"], WIDTH, initial_indent="note    ", subsequent_indent=" " * 8)
    return "\n".join([*lines, "", f"set with `{described['set']}`"])


def describe_preference(name: str) -> dict[str, Any]:
    """Formula, source and note of a loss; of a method what it is."""
    if name in METHODS:
        losses = {"losses": list(LOSSES)} if name == "prefer" else {}
        return {"preference": name, "summary": METHODS[name], **losses}
    return {"preference": name, **LOSSES[name]._asdict(), "set": f"train.method: prefer, prefer.loss: {name}"}


def render_preference(described: dict[str, Any]) -> str:
    """The text form of `describe_preference`."""
    name = described["preference"]
    if name in METHODS:
        losses = f"\n\nlosses   {', '.join(described['losses'])}" if "losses" in described else ""
        return f"{name}\n\n{described['summary']}{losses}"
    lines = [name, "", *described["formula"].split(";  "), *textwrap.wrap(f"({LOSS_LEGEND})", WIDTH), ""]
    lines.append(f"source  {described['source']}")
    lines += textwrap.wrap(described["note"], WIDTH, initial_indent="note    ", subsequent_indent=" " * 8)
    return "\n".join([*lines, "", f"set with `train.method: prefer` and `prefer.loss: {name}`"])


def flat_preset(preset: dict[str, Any], under: str = "") -> dict[str, Any]:
    """Leaves by dotted key."""
    out: dict[str, Any] = {}
    for key, value in preset.items():
        out |= flat_preset(value, f"{under}{key}.") if isinstance(value, dict) else {f"{under}{key}": value}
    return out
