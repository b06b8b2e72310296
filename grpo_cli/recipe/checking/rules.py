"""Rules between fields, each with the reason and a way out. Ranges of single fields stand in `models`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from grpo_cli.recipe.checking.ads import check_ads
from grpo_cli.recipe.checking.alive_by import check_alive_by
from grpo_cli.recipe.checking.critic import check_critic
from grpo_cli.recipe.checking.episodes import check_episodes
from grpo_cli.recipe.checking.mistakes import RecipeFinding, shown, unknown
from grpo_cli.recipe.checking.monitors import check_canary, check_gold
from grpo_cli.recipe.checking.prefer import check_prefer
from grpo_cli.recipe.checking.stages import check_sft, check_stages
from grpo_cli.recipe.checking.strategy import check_strategy
from grpo_cli.recipe.checking.turn_credit import check_credit
from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.sections.recipe import By, Recipe
from grpo_cli.recipe.whole_batch import acts_on_every_row, whole_only
from grpo_cli.run.naming import why_no_name, why_no_place
from grpo_cli.text import visible

NAME = re.compile(r"[A-Za-z0-9_-]+")

Said = Callable[[Path], bool]


def check_rules(recipe: Recipe, said: Said) -> list[RecipeFinding]:
    """What single fields allow and together cannot be meant. `said` tells values from defaults and presets."""
    checks = (
        *(_verifiers, _combining, _sampling, _model, _loss, _dead_groups, _schedule),
        *(_evaluation, check_gold, check_canary, _gate, _nodes, _places),
        *(check_strategy, check_episodes, check_credit, check_prefer, check_sft, check_stages),
        *(check_critic, check_ads, check_alive_by),
    )
    return [finding for check in checks for finding in check(recipe, said)]


def _at(said: Said, *paths: Path) -> Path:
    """The first path that was written down, so that the caret stands under something the user typed."""
    return next((path for path in paths if said(path)), paths[0])


def _places(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    run = recipe.run
    if run.name is not None and (why := why_no_name(run.name)):
        yield RecipeFinding(
            ("run", "name"), f"{shown(visible(run.name, 60))} cannot name a run: {why}", "letters, digits, - _ . +"
        )
    if why := why_no_place(run.dir):
        yield RecipeFinding(("run", "dir"), f"{shown(visible(run.dir, 60))} cannot hold runs: {why}")


def _verifiers(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    for name in recipe.verify:
        if not NAME.fullmatch(name) or name == "total":
            yield RecipeFinding(
                ("verify", name),
                f"a verifier cannot be named {shown(name)}",
                "its name is part of metrics such as `reward/NAME/mean`: letters, digits, `_` and `-`, not `total`",
                at_key=True,
            )
    both = set(recipe.verify) & set(recipe.shaping)
    for name in sorted(both):
        yield RecipeFinding(
            ("shaping", name), f"`{name}` is a verifier and a shaping term", "rename the verifier", at_key=True
        )
    if recipe.train.overlong and "overlong" in recipe.shaping:
        yield RecipeFinding(
            ("shaping", "overlong"),
            f"`train.overlong` ({recipe.train.overlong:g}) is a penalty for long answers too",
            "leave one out: `shaping.overlong`, or `train.overlong: null`",
            at_key=True,
        )
    primary = [name for name, one in recipe.verify.items() if one.primary]
    for name in primary[1:]:
        yield RecipeFinding(
            ("verify", name, "primary"),
            f"`verify.{primary[0]}` is primary already",
            "one verifier says what right means; leave `primary` out of the others",
        )
    if abs(sum(one.weight for one in recipe.verify.values())) < 1e-12:
        first = next(iter(recipe.verify))
        path = _at(said, *(("verify", name, "weight") for name in recipe.verify), ("verify", first))
        yield RecipeFinding(path, "the weights of `verify` sum to 0: an answer that passes everything earns nothing")
    for name, one in recipe.verify.items():
        if one.primary and one.weight < 0:
            yield RecipeFinding(
                ("verify", name, "weight"),
                f"`verify.{name}` is primary with a weight below 0: right answers would be punished",
            )


def _combining(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    c = recipe.combine
    for name in c.gate:
        if name not in recipe.verify:
            hint = unknown(name, recipe.verify, "`verify`")
            yield RecipeFinding(
                ("combine", "gate", name), f"`combine.gate` names no verifier `{name}`", hint, at_key=True
            )
    if c.method == "gate" and not c.gate:
        yield RecipeFinding(
            ("combine", "method"), "`combine.gate` names no verifier", "such as `gate: {format: needs_right}`"
        )
    if c.method == "by" and c.by is None:
        yield RecipeFinding(("combine", "method"), "`combine.by` names no column")
    named: list[tuple[Path, str]] = []
    if isinstance(c.by, By):
        named += [(("values", value), name) for value, name in c.by.values.items()]
        named += [(("default",), c.by.default)] if c.by.default is not None else []
    for below, name in named:
        if name not in recipe.verify:
            hint = unknown(name, recipe.verify, "`verify`")
            yield RecipeFinding(("combine", "by", *below), f"`combine.by` names no verifier `{name}`", hint)
    unused = [key for key in ("gate", "by") if getattr(c, key) and c.method != key]
    for key in unused:
        yield RecipeFinding(("combine", key), f"`combine.{key}` has no effect with `method: {c.method}`")


def _sampling(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    s = recipe.sample
    total = s.prompts * s.group
    if s.micro_batch is not None and total % s.micro_batch:
        fits = [n for n in range(1, total + 1) if total % n == 0]
        near = sorted(sorted(fits, key=lambda n: abs(n - (s.micro_batch or 1)))[:3])
        yield RecipeFinding(
            ("sample", "micro_batch"),
            f"`sample.micro_batch` {s.micro_batch} does not divide {s.prompts} prompts x {s.group} = {total}",
            f"these near it do: {', '.join(map(str, near))}",
        )
    yield from _mini_batches(recipe, total)
    off = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    changed = [name for name, neutral in off.items() if getattr(s, name) != neutral]
    if changed and not s.off_policy_ok:
        names = " and ".join(f"`{name}`" for name in changed)
        yield RecipeFinding(
            ("sample", changed[0]),
            f"{names} would train on samples the policy did not draw as it scores them (off-policy)",
            f"leave {names} out, or say `sample.off_policy_ok: true`",
        )
    if s.vllm and not s.engine_kind.takes_settings:
        yield RecipeFinding(("sample", "vllm"), f"`sample.vllm` has no effect with `engine: {s.engine}`")


def _mini_batches(recipe: Recipe, total: int) -> Iterator[RecipeFinding]:
    parts, micro = recipe.train.mini_batches, recipe.sample.micro_batch
    if total % parts:
        yield RecipeFinding(
            ("train", "mini_batches"),
            f"`train.mini_batches` {parts} does not divide {total} completions a step",
            f"these do: {', '.join(str(n) for n in range(1, total + 1) if total % n == 0)}",
        )
    elif micro is not None and total % micro == 0 and total // parts % micro:
        yield RecipeFinding(
            ("sample", "micro_batch"),
            f"`sample.micro_batch` {micro} does not divide a mini-batch of {total // parts} completions",
            "lower it, or lower `train.mini_batches`",
        )


def _model(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    m = recipe.model
    if m.load_in_4bit and m.lora is None:
        yield RecipeFinding(
            ("model", "load_in_4bit"),
            "weights in 4 bits cannot be trained",
            "add `model.lora: {r: 16}` to train adapters on them",
        )
    if m.load_in_4bit and (m.gguf_file or m.path.endswith(".gguf")):
        yield RecipeFinding(("model", "load_in_4bit"), "a GGUF model is unpacked when loaded and cannot be in 4 bits")
    if m.gguf_file and m.path.endswith(".gguf"):
        yield RecipeFinding(("model", "gguf_file"), "`model.path` names the GGUF file already")
    if m.context is not None and m.path != "builtin:tiny":
        yield RecipeFinding(
            ("model", "context"),
            f"`model.context` is that of `builtin:tiny`; `{m.path}` was made with one of its own",
            "leave it out",
        )
    local = m.path.startswith("builtin:") or m.path.endswith(".gguf")
    if m.revision and local:
        yield RecipeFinding(("model", "revision"), f"`model.revision` means nothing for `{m.path}`")
    if m.template_args and recipe.train.trl.get("chat_template_kwargs"):
        yield RecipeFinding(
            ("train", "trl", "chat_template_kwargs"),
            "`model.template_args` says what the chat template gets",
            "put all of it there: it reaches every job",
        )
    for name in {"messages", "tools", "documents", "add_generation_prompt"} & set(m.template_args):
        yield RecipeFinding(
            ("model", "template_args", name), f"`{name}` comes from the rows, not from `template_args`", at_key=True
        )
    if recipe.data.prefill and recipe.environment is not None:
        yield RecipeFinding(
            ("data", "prefill"),
            "`data.prefill` begins one answer, and an episode of `environment` has several",
            "leave it out, or let `model.chat_template` open every turn so",
        )
    if recipe.data.plain and (m.chat_template or m.template_args):
        key = "chat_template" if m.chat_template else "template_args"
        yield RecipeFinding(
            ("model", key), f"`model.{key}` has no effect with `data.plain: true`", "leave one of the two out"
        )


def _loss(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    t = recipe.train
    at_loss = _at(said, ("train", "ratio"), ("train", "loss"), ("train", "algorithm"))
    if t.ratio != "token" and t.loss in ("dapo", "bnpo"):
        yield RecipeFinding(
            at_loss,
            f"`ratio: {t.ratio}` with `loss: {t.loss}` weighs an answer by its length",
            "GSPO is `loss: grpo`, or say `algorithm: gspo`",
        )
    if t.ratio != "token" and t.loss in ("cispo", "sapo", "vespo"):
        yield RecipeFinding(at_loss, f"`loss: {t.loss}` is defined for `ratio: token`, got `{t.ratio}`")
    if t.loss == "luspo" and t.ratio != "sequence":
        yield RecipeFinding(at_loss, f"`loss: luspo` needs `ratio: sequence`, got `{t.ratio}`")
    if t.loss == "cispo" and t.clip.cap is None:
        yield RecipeFinding(
            _at(said, ("train", "clip"), ("train", "loss")),
            "`loss: cispo` needs `train.clip.cap`, the absolute cap of the ratio",
            "5.0 is what TRL and ScaleRL use",
        )
    if t.clip.cap is not None and t.loss != "cispo":
        yield RecipeFinding(
            ("train", "clip", "cap"),
            f"`train.clip.cap` belongs to `loss: cispo`, not `{t.loss}`",
            "the bound of the other losses is `train.clip.high`",
        )
    if t.baseline == "leave_one_out" and t.scale != "none":
        yield RecipeFinding(
            _at(said, ("train", "scale"), ("train", "baseline")),
            f"`baseline: leave_one_out` goes with `scale: none`, got `{t.scale}`",
        )
    if t.prune is not None:
        yield from _prune(recipe)
    if t.control is not None and t.reward_combine != "sum":
        yield RecipeFinding(
            ("train", "control"), "`train.control` replaces the summed reward, which `normalise_then_sum` never forms"
        )
    if t.reward_combine == "normalise_then_sum" and (t.baseline != "mean" or t.scale != "group"):
        yield RecipeFinding(
            _at(said, ("train", "reward_combine")),
            "`reward_combine: normalise_then_sum` scales each part within its group and then over the batch",
            "leave `baseline` and `scale` as they are",
        )
    if t.reward_combine == "normalise_then_sum" and t.kl.beta > 0 and t.kl.estimator == "k1_reward":
        yield RecipeFinding(
            _at(said, ("train", "kl", "estimator"), ("train", "reward_combine")),
            "`k1_reward` takes the KL off the summed reward, and `normalise_then_sum` never forms that sum",
            "choose another `kl.estimator`, such as `k3_corrected`",
        )
    if t.reward_combine == "normalise_then_sum" and recipe.combine.method != "sum":
        yield RecipeFinding(
            _at(said, ("combine", "method"), ("train", "reward_combine")),
            f"`combine: {recipe.combine.method}` has no effect on `reward_combine: normalise_then_sum`, which takes the"
            " scores of the verifiers apart: what is gated would be paid",
            "leave `combine` out, or say `reward_combine: sum`",
        )


def _dead_groups(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    t = recipe.train
    if t.dead_groups == "drop" and t.kl.beta > 0 and t.kl.estimator != "k1_reward":
        yield RecipeFinding(
            _at(said, ("train", "dead_groups"), ("train", "kl", "beta")),
            "`dead_groups: drop` would leave the KL term of dropped answers out of the loss",
            "say `train.dead_groups: keep` with `kl.beta` above 0",
        )
    acting = acts_on_every_row(t.trl)
    if t.dead_groups == "drop" and acting:
        yield RecipeFinding(
            ("train", "trl", acting[0]),
            f"`dead_groups: drop` would leave dropped answers out of what `{acting[0]}` acts on",
            "say `train.dead_groups: keep` beside it",
        )
    micro = recipe.sample.micro_batch
    parts = recipe.sample.prompts * recipe.sample.group // micro if micro else 1
    for name in whole_only(t.trl) if parts > 1 else ():
        yield RecipeFinding(
            ("train", "trl", name),
            f"`{name}` is taken over one micro-batch at a time: {parts} of them would train on something else than one",
            "leave `sample.micro_batch` out",
        )


def _prune(recipe: Recipe) -> Iterator[RecipeFinding]:
    t, path = recipe.train, ("train", "prune")
    assert t.prune is not None
    if t.prune.keep >= recipe.sample.group:
        yield RecipeFinding(
            (*path, "keep"),
            f"`train.prune.keep` is {t.prune.keep} of a group of {recipe.sample.group}: nothing is left out",
        )
    if t.dead_groups == "keep" or (t.kl.beta > 0 and t.kl.estimator != "k1_reward"):
        yield RecipeFinding(
            path,
            "pruned answers take no part in the loss, a KL term or `dead_groups: keep` wants all of them",
            "say `train.dead_groups: drop` and `kl.beta: 0`",
        )
    for name in acts_on_every_row(t.trl):
        yield RecipeFinding(
            path,
            f"pruned answers take no part in the loss, `{name}` acts on all of them",
            f"leave `prune` or `train.trl.{name}` out",
        )
    if t.loss == "bnpo":
        yield RecipeFinding(
            path, "`loss: bnpo` averages over each micro-batch and has no meaning for pruned ones", "say `loss: dapo`"
        )
    if t.prune.by == "variance" and t.reward_combine == "normalise_then_sum":
        yield RecipeFinding(
            (*path, "by"), "`by: variance` compares summed rewards, `normalise_then_sum` never forms them"
        )


def _schedule(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    t = recipe.train
    if not t.steps and t.epochs is None:
        yield RecipeFinding(
            _at(said, ("train", "steps"), ("train",)),
            "`train.steps: 0` trains nothing"
            if said(("train", "steps"))
            else "`train` says neither `steps` nor `epochs`",
            "`train.steps: 200`, or `train.epochs: 1` for every row once",
        )
    if t.steps and t.epochs is not None:
        yield RecipeFinding(
            _at(said, ("train", "epochs")),
            f"`train.epochs: {t.epochs:g}` and `train.steps: {t.steps}` both say how long to train",
            "leave one of them out (`train.epochs: null`, or `train.steps: 0`)",
        )
    if "lr_scheduler_type" in t.trl and said(("train", "schedule")):
        yield RecipeFinding(
            ("train", "trl", "lr_scheduler_type"),
            "`train.schedule` is said too",
            "leave one of the two out",
            idle=("train", "schedule"),
        )


def _evaluation(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    e, held_out = recipe.eval, recipe.data.eval is not None
    if max(e.k) > e.samples:
        yield RecipeFinding(
            _at(said, ("eval", "k"), ("eval", "samples")),
            f"pass@{max(e.k)} needs {max(e.k)} samples of a prompt, `eval.samples` is {e.samples}",
        )
    if e.every is not None and not held_out:
        yield RecipeFinding(("eval", "every"), "`eval.every` needs held-out rows", "name them in `data.eval`")
    if recipe.stop.patience is not None and (e.every is None or not held_out):
        yield RecipeFinding(
            ("stop", "patience"),
            "`stop.patience` needs held-out scores during the run",
            "set `eval.every` and `data.eval`",
        )
    if e.between is not None and e.every is None:
        yield RecipeFinding(
            ("eval", "between"), "nothing is measured between the first and the last step", "set `eval.every`"
        )


def _gate(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    gate = recipe.gate
    if gate is not None and gate.pass_1[0] >= gate.pass_1[1]:
        low, high = gate.pass_1
        yield RecipeFinding(
            ("gate", "pass@1"),
            f"`gate.pass@1` is [{low:g}, {high:g}]: nothing lies between",
            "the lowest share comes first",
        )


def _nodes(recipe: Recipe, said: Said) -> Iterator[RecipeFinding]:
    launch = recipe.launch
    if launch.nodes > 1 and launch.rendezvous is None:
        yield RecipeFinding(
            ("launch", "nodes"),
            f"{launch.nodes} machines need `launch.rendezvous` to find each other",
            "say machine 0's `host:port`, such as `node17:29500`",
        )
    if launch.node_rank is not None and launch.node_rank >= launch.nodes:
        yield RecipeFinding(("launch", "node_rank"), f"machine {launch.node_rank} of {launch.nodes}: they count from 0")
    if launch.nodes == 1 and launch.rendezvous is not None:
        yield RecipeFinding(("launch", "rendezvous"), "`launch.rendezvous` has no effect with `launch.nodes: 1`")
