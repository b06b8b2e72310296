"""What the suite runs: presets x KL x dead groups x micro-batches on one small llama, fourteen families, two ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_cli.recipe.widening import PRESETS
from tests.reference.families import FAMILIES, MORE

ESTIMATORS = ("k1_loss", "k1_reward", "k2", "k3", "k3_corrected")
BATCH = 20
"""Completions a step: five prompts, four answers each."""
TWO: dict[str, Any] = {"verify": {"v": {"primary": True}, "w": {"weight": 0.5}}}


@dataclass(frozen=True)
class Planned:
    """One run: `family` names a checkpoint (or builtin:tiny), `changes` what its recipe says beside the common one."""

    name: str
    part: str
    changes: dict[str, Any]
    family: str = "llama"
    ranks: int = 1

    @property
    def plays(self) -> bool:
        """Whether its answers are episodes of several turns."""
        return "turns" in self.name.split()


def planned() -> list[Planned]:
    """The whole suite."""
    return [
        *_presets(),
        *_kl(),
        *_advantages(),
        *_turns(),
        *_mini_batches(),
        *_critics(),
        *_families(),
        *_tiny(),
        *_ranks(),
    ]


def _run(part: str, *words: str, family: str = "llama", ranks: int = 1, **changes: Any) -> Planned:
    return Planned(" ".join([part, *words]), part, changes, family, ranks)


def _dead(baseline: str, beta: float, estimator: str) -> tuple[str, ...]:
    if baseline == "critic":
        return ("keep",)
    return ("keep", "drop") if not beta or estimator == "k1_reward" else ("keep",)


def _presets() -> Iterator[Planned]:
    """Each as it is, but for the resampling of `dapo`, with dead groups kept and dropped, in one piece and in twenty."""
    for name, preset in PRESETS.items():
        for dead in _dead(preset["baseline"], preset["kl"]["beta"], preset["kl"]["estimator"]):
            for micro in (1, BATCH // preset["mini_batches"]):
                if preset["loss"] == "bnpo" and micro == 1:
                    continue
                train = {"algorithm": name, "dead_groups": dead, "steps": 1 if preset["inner_epochs"] > 1 else 2}
                if name == "dapo":
                    train["overlong"] = 0.4
                # credit for turns is of episodes
                words, room = (("turns",), {"max_tokens": 14}) if preset["credit"] else ((), {})
                sample = {"micro_batch": micro, **room}
                yield _run("presets", name, *words, dead, f"mb{micro}", train=train, sample=sample)


def _kl() -> Iterator[Planned]:
    """Every estimator with every way to average, over two epochs of one batch, so that ratios are not 1."""
    for loss in ("grpo", "dapo", "dr_grpo", "bnpo", "sapo", "cispo"):
        for estimator in ESTIMATORS:
            for micro in (4, BATCH):
                train: dict[str, Any] = {"loss": loss, "inner_epochs": 2, "steps": 2, "dead_groups": "keep"}
                train["kl"] = {"beta": 0.2, "estimator": estimator}
                train["scale"] = "none" if estimator == "k1_reward" else "group"
                if loss == "cispo":
                    train["clip"] = {"cap": 1.05}
                yield _run("kl", loss, estimator, f"mb{micro}", train=train, sample={"micro_batch": micro})


def _advantages() -> Iterator[Planned]:
    """Scales, baselines, parts that are normalised one by one, cut answers, the entropy bonus, temperature."""
    for scale in ("group", "batch", "none"):
        for ddof in (0, 1):
            yield _run("advantages", scale, f"ddof{ddof}", train={"scale": scale, "std_ddof": ddof})
    yield _run("advantages", "leave_one_out", train={"scale": "none", "baseline": "leave_one_out"})
    yield _run("advantages", "two verifiers", train={}, **TWO)
    yield _run("advantages", "normalise_then_sum", train={"reward_combine": "normalise_then_sum"}, **TWO)
    kept = {"reward_combine": "normalise_then_sum", "dead_groups": "keep"}
    yield _run("advantages", "normalise_then_sum keep", train=kept, **TWO)
    own = {"task": {"verifiers": ["v"], "weight": 0.8}, "form": {"verifiers": ["w"], "weight": 0.6}}
    for dead in ("drop", "keep"):
        train = {"reward_combine": "split", "split": own, "dead_groups": dead, "inner_epochs": 2}
        yield _run("advantages", "split", dead, train=train, **(TWO | {"verify": TWO["verify"] | {"w": {"weight": 0}}}))
    for loss in ("grpo", "dapo", "dr_grpo"):
        train = {"loss": loss, "mask_truncated": True, "inner_epochs": 2}
        yield _run("advantages", "mask_truncated", loss, train=train, sample={"micro_batch": 4})
    cut = {"mask_truncated": True, "scale": "none", "kl": {"beta": 0.2, "estimator": "k1_reward"}}
    yield _run("advantages", "mask_truncated k1_reward", train=cut)
    yield _run("advantages", "temperature", train={}, sample={"temperature": 0.6})
    for scale in ("group", "batch"):
        train = {"scale": scale, "kl": {"beta": 0.05, "estimator": "k1_reward"}, "inner_epochs": 2}
        yield _run("advantages", "k1_reward", scale, train=train)
    for loss in ("vespo", "luspo"):
        ratio = {"luspo": "sequence", "vespo": "token"}[loss]
        for dead, micro in (("keep", BATCH), ("drop", 4)):
            train = {"loss": loss, "ratio": ratio, "inner_epochs": 2, "dead_groups": dead}
            yield _run("advantages", loss, dead, f"mb{micro}", train=train, sample={"micro_batch": micro})
    yield _run("advantages", "pass_k", train={"algorithm": "pass_k", "pass_k": 2})
    for bound, delta in (("tv", 2e-4), ("kl", 1e-6)):
        train = {"algorithm": "dppo", "ratio_clip": bound, "clip": {"delta": delta, "pull": 0.1}, "steps": 1}
        yield _run("advantages", "dppo", bound, train=train, sample={"micro_batch": 4})
    train = {"algorithm": "gmpo", "clip": {"low": 2e-3, "high": 1e-3}, "steps": 1, "dead_groups": "keep"}
    yield _run("advantages", "gmpo", train=train, sample={"micro_batch": 4})
    yield _run(
        "advantages", "otb temperature", train={"algorithm": "otb"}, sample={"temperature": 0.7, "micro_batch": 4}
    )
    for by in ("advantage", "variance"):
        for loss in ("dapo", "grpo"):
            train = {"loss": loss, "prune": {"keep": 2, "by": by}, "inner_epochs": 2}
            yield _run("advantages", "prune", by, loss, train=train, sample={"micro_batch": 4})
    for micro in (1, 4, BATCH):
        train = {"dead_groups": "keep", "trl": {"entropy_coef": 0.1}}
        yield _run("advantages", "entropy_coef", f"mb{micro}", train=train, sample={"micro_batch": micro})


def _turns() -> Iterator[Planned]:
    """Episodes of up to three turns with credit for each: environment tokens between, cut ones, some without a verdict."""
    methods: dict[str, dict[str, Any]] = {
        "dapo": {},
        "epochs": {"inner_epochs": 2},
        "grpo": {"loss": "grpo", "kl": {"beta": 0.2, "estimator": "k2"}, "dead_groups": "keep"},
        "k3": {"kl": {"beta": 0.2, "estimator": "k3_corrected"}, "dead_groups": "keep", "inner_epochs": 2},
        "k1_reward": {"scale": "none", "kl": {"beta": 0.05, "estimator": "k1_reward"}, "inner_epochs": 2},
        "mask_truncated": {"mask_truncated": True, "inner_epochs": 2},
        "mask_truncated k1_reward": {
            "mask_truncated": True,
            "scale": "none",
            "kl": {"beta": 0.2, "estimator": "k1_reward"},
        },
        "bnpo": {"loss": "bnpo", "dead_groups": "keep"},
        "sequence_token": {"loss": "grpo", "ratio": "sequence_token", "inner_epochs": 2},
        "cispo": {"loss": "cispo", "clip": {"cap": 1.05}, "inner_epochs": 2},
        "entropy": {"dead_groups": "keep", "trl": {"entropy_coef": 0.1}},
        "overlong": {"overlong": 0.4},
    }
    for name, changes in methods.items():
        for micro in (1, 4, BATCH):
            if changes.get("loss") == "bnpo" and micro == 1:
                continue
            yield _run(
                "turns",
                name,
                f"mb{micro}",
                train={"credit": {"method": "gigpo", "gamma": 0.9}, **changes},
                sample={"max_tokens": 14, "micro_batch": micro},
            )
    train = {"credit": "gigpo", "inner_epochs": 2}
    sample = {"max_tokens": 14, "micro_batch": 5}
    yield _run("turns", "two ranks", ranks=2, train=train, sample=sample)
    yield _run("turns", "two ranks k3", ranks=2, train=methods["k3"] | {"credit": "gigpo"}, sample=sample)


def _mini_batches() -> Iterator[Planned]:
    """Several optimizer steps on parts of a batch, once and twice, in one piece each and in several, alone and on two ranks."""
    methods: dict[str, dict[str, Any]] = {
        "dapo": {},
        "grpo": {"loss": "grpo"},
        "dr_grpo": {"loss": "dr_grpo", "dead_groups": "keep"},
        "cispo": {"loss": "cispo", "clip": {"cap": 1.05}},
        "sapo": {"loss": "sapo"},
        "gspo": {"algorithm": "gspo", "inner_epochs": 1},
        "k2": {"kl": {"beta": 0.2, "estimator": "k2"}, "dead_groups": "keep"},
        "entropy": {"dead_groups": "keep", "trl": {"entropy_coef": 0.1}},
        "twice": {"inner_epochs": 2},
    }
    for name, changes in methods.items():
        for micro in (1, 5) if name != "entropy" else (5,):
            train = {"mini_batches": 4, **changes}
            yield _run("mini-batches", name, f"mb{micro}", train=train, sample={"micro_batch": micro})
    train = {"mini_batches": 2, "inner_epochs": 2, "steps": 1}
    yield _run("mini-batches", "two ranks", ranks=2, train=train, sample={"micro_batch": 5})
    credit = {"credit": "gigpo", "mini_batches": 4}
    yield _run("mini-batches", "turns", train=credit, sample={"max_tokens": 14, "micro_batch": 5})


def _critics() -> Iterator[Planned]:
    """PPO: how far advantages look, a KL paid by the token, cut answers, right ones imitated, groups of one, episodes."""
    pull = {"kl": {"beta": 0.1, "estimator": "k1_token"}}
    methods: dict[str, dict[str, Any]] = {
        "one piece": {"mini_batches": 1, "critic": {"mini_batches": 1, "lr": 0.01}},
        "kl": pull | {"critic": {"lr": 0.01, "clip": 0.05, "epochs": 2}, "inner_epochs": 2},
        "discount": {"critic": {"gamma": 0.9, "lambda": 0.7}},
        "adaptive": {"critic": {"lambda": "adaptive"}},
        "cut": {"critic": {"cut": "value", "lr": 0.01}},
        "cut masked": {"mask_truncated": True, "critic": {"lr": 0.01}},
        "positive": {"critic": {"positive": 0.1}},
    }
    for name, changes in methods.items():
        for part in ("critic", "critic turns"):
            sample = {"micro_batch": 5, "max_tokens": 14 if "turns" in part else 10}
            yield _run(part, name, train={"algorithm": "ppo", **changes}, sample=sample)
    alone = {"prompts": BATCH, "group": 1, "micro_batch": 5}
    yield _run("critic", "groups of one", train={"algorithm": "ppo"}, sample=alone)
    train = {"algorithm": "ppo", "mini_batches": 1, **pull}
    yield _run("critic", "two ranks", ranks=2, train=train, sample={"micro_batch": 5})
    sample = {"micro_batch": 5, "max_tokens": 14}
    yield _run("critic turns", "two ranks", ranks=2, train=train, sample=sample)


def _families() -> Iterator[Planned]:
    """Ratios and KL on every family, dead groups kept and dropped, micro-batches of unequal width."""
    for family in FAMILIES | MORE:
        part = "families" if family in FAMILIES else "more families"
        for dead, micro in (("keep", BATCH), ("drop", 4)):
            train = {"inner_epochs": 2, "dead_groups": dead}
            yield _run(part, family, dead, f"mb{micro}", family=family, train=train, sample={"micro_batch": micro})
        train = {"algorithm": "grpo", "inner_epochs": 2}
        yield _run(part, family, "kl", family=family, train=train, sample={"micro_batch": 1})


def _tiny() -> Iterator[Planned]:
    for name in ("default", "grpo", "gspo"):
        yield _run("builtin:tiny", name, family="builtin:tiny", train={"algorithm": name, "steps": 1})


def _ranks() -> Iterator[Planned]:
    """Two gloo ranks: each holds ten answers, the third group on both."""
    for name in ("default", "grpo", "gspo", "rloo", "cispo", "dppo", "gmpo", "otb"):
        train: dict[str, Any] = {"algorithm": name, "inner_epochs": 2, "steps": 1}
        yield _run("ranks", name, ranks=2, train=train, sample={"micro_batch": 5})
    for estimator in ("k1_loss", "k2"):
        train = {"algorithm": "grpo", "inner_epochs": 2, "kl": {"beta": 0.2, "estimator": estimator}}
        yield _run("ranks", estimator, ranks=2, train=train)
    train = {"dead_groups": "keep", "trl": {"entropy_coef": 0.1}}
    yield _run("ranks", "entropy_coef", ranks=2, train=train, sample={"micro_batch": 5})
    yield _run("ranks", "gpt2", family="gpt2", ranks=2, train={"inner_epochs": 2})
