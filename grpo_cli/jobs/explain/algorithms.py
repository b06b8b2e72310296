"""What `grpo explain` says of an algorithm: formula and source stand here, the fields come from its preset."""

from __future__ import annotations

from typing import Any, NamedTuple

from grpo_cli.recipe.presets import PRESETS

LEGEND = "r ratio of the policy to the one that sampled, A advantage, G group, |y| tokens of an answer, sg stop-gradient"


class MethodPage(NamedTuple):
    """One method in words."""

    formula: str
    source: str
    note: str = ""


ABOUT: dict[str, MethodPage] = {
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
    "ppo": MethodPage(
        "d_t = r_t + gamma V_(t+1) - V_t;  A_t = d_t + gamma lambda A_(t+1), whitened over the tokens of the batch;  "
        "loss = -sum min(r A, clip(r, .8, 1.2) A) / tokens;  critic: .5 mean max((V - R)^2, (clip(V) - R)^2) over the running deviation of R squared, R = A + V",
        "PPO, arXiv 1707.06347, with GAE, arXiv 1506.02438; `lambda: adaptive` and `positive` are VAPO's, arXiv 2504.05118",
        "a critic (`train.critic`) learns apart and gives each token its advantage; it warms up before the policy moves; "
        "`sample.group` may be 1; `kl.beta` is taken off the reward of each token",
    ),
}


def describe(name: str) -> dict[str, Any]:
    """Formula, source, note and the fields that a preset sets, those that differ from `default` marked."""
    about, preset = ABOUT[name], flat_preset(PRESETS[name])
    base = flat_preset(PRESETS["default"])
    return {
        "algorithm": name,
        "formula": about.formula,
        "source": about.source,
        "note": about.note,
        "sets": preset,
        "differs": [key for key in preset if preset[key] != base.get(key)],
    }


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    lines = [
        described["algorithm"],
        "",
        *described["formula"].replace(";  ", "\n").splitlines(),
        f"({LEGEND})",
    ]
    lines += ["", f"source  {described['source']}"]
    if described["note"]:
        lines.append(f"note    {described['note']}")
    lines += ["", "sets (* unlike `default`)"]
    for key, value in described["sets"].items():
        mark = "*" if key in described["differs"] else " "
        lines.append(
            f"  {mark} train.{key}: {'null' if value is None else str(value).lower() if value is False else value}"
        )
    return "\n".join(lines)


def flat_preset(preset: dict[str, Any], under: str = "") -> dict[str, Any]:
    """Leaves by dotted key."""
    out: dict[str, Any] = {}
    for key, value in preset.items():
        out |= flat_preset(value, f"{under}{key}.") if isinstance(value, dict) else {f"{under}{key}": value}
    return out
