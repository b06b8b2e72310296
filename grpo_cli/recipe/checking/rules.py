"""Rules between sections, each with the reason and a way out. Ranges of single fields stand in the sections.

How this works: `check_rules` calls all rules with a recipe whose names, types and ranges are right. A rule yields a
finding for values that are each allowed but contradict each other. `is_set` separates what was written from defaults
and presets, so that a finding stands at a key that the user wrote. Rules of `train`, of preferences and of episodes
stand in files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from grpo_cli.recipe.checking.episodes import check_credit, check_episodes
from grpo_cli.recipe.checking.losses import check_baseline, check_bound, check_distil
from grpo_cli.recipe.checking.method import (
    check_ads,
    check_alive_by,
    check_critic,
    check_dead_groups,
    check_loss,
    check_prefer,
    check_schedule,
    check_split,
)
from grpo_cli.recipe.checking.values import IsSet, RecipeFinding, first_set, shown, unknown
from grpo_cli.recipe.sections.course import keeps_whole
from grpo_cli.recipe.sections.fields import Path
from grpo_cli.recipe.sections.recipe import By, Recipe
from grpo_cli.run.naming import why_no_name, why_no_place
from grpo_cli.text import visible

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def check_rules(recipe: Recipe, is_set: IsSet) -> list[RecipeFinding]:
    """Values that are each allowed but contradict each other. `is_set` distinguishes written values from defaults and
    presets."""
    checks = (
        *(_verifiers, _combining, _sampling, _model, _images, _memory, check_loss, check_dead_groups, check_schedule),
        *(_evaluation, _monitors, _course, _strategy),
        *(check_episodes, check_credit, check_prefer, _stages),
        *(check_critic, check_ads, check_alive_by, check_split),
        *(check_baseline, check_bound, check_distil),
    )
    return [finding for check in checks for finding in check(recipe, is_set)]


def _verifiers(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    for name in recipe.verify:
        if not NAME.fullmatch(name) or name == "total":
            said = "its name is part of metrics such as `reward/NAME/mean`: letters, digits, `_` and `-`, not `total`"
            yield RecipeFinding(("verify", name), f"a verifier cannot be named {shown(name)}", said, at_key=True)
    for name in sorted(set(recipe.verify) & set(recipe.shaping)):
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
        said = "one verifier says what right means; leave `primary` out of the others"
        yield RecipeFinding(("verify", name, "primary"), f"`verify.{primary[0]}` is primary already", said)
    if abs(sum(one.weight for one in recipe.verify.values())) < 1e-12:
        first = next(iter(recipe.verify))
        path = first_set(is_set, *(("verify", name, "weight") for name in recipe.verify), ("verify", first))
        yield RecipeFinding(path, "the weights of `verify` sum to 0: an answer that passes everything earns nothing")
    for name, one in recipe.verify.items():
        if one.primary and one.weight < 0:
            said = f"`verify.{name}` is primary with a weight below 0: right answers would be punished"
            yield RecipeFinding(("verify", name, "weight"), said)


def _combining(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
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
    for key in ("gate", "by"):
        if getattr(c, key) and c.method != key:
            yield RecipeFinding(("combine", key), f"`combine.{key}` has no effect with `method: {c.method}`")


def _sampling(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    s = recipe.sample
    total = s.prompts * s.group
    if s.micro_batch is not None and total % s.micro_batch:
        fits = [n for n in range(1, total + 1) if total % n == 0]
        near = sorted(sorted(fits, key=lambda n: abs(n - (s.micro_batch or 1)))[:3])
        said = f"`sample.micro_batch` {s.micro_batch} does not divide {s.prompts} prompts x {s.group} = {total}"
        yield RecipeFinding(("sample", "micro_batch"), said, f"these near it do: {', '.join(map(str, near))}")
    parts, micro = recipe.train.mini_batches, s.micro_batch
    if total % parts:
        yield RecipeFinding(
            ("train", "mini_batches"),
            f"`train.mini_batches` {parts} does not divide {total} completions a step",
            f"these do: {', '.join(str(n) for n in range(1, total + 1) if total % n == 0)}",
        )
    elif micro is not None and total % micro == 0 and total // parts % micro:
        said = f"`sample.micro_batch` {micro} does not divide a mini-batch of {total // parts} completions"
        yield RecipeFinding(("sample", "micro_batch"), said, "lower it, or lower `train.mini_batches`")
    off = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    changed = [name for name, neutral in off.items() if getattr(s, name) != neutral]
    if changed and not s.off_policy_ok:
        names = " and ".join(f"`{name}`" for name in changed)
        said = f"{names} would train on samples the policy did not draw as it scores them (off-policy)"
        yield RecipeFinding(("sample", changed[0]), said, f"leave {names} out, or say `sample.off_policy_ok: true`")
    if s.mix is not None:
        yield from _mixing(recipe, changed)
    if s.vllm and not s.engine_kind.takes_settings:
        yield RecipeFinding(("sample", "vllm"), f"`sample.vllm` has no effect with `engine: {s.engine}`")


def _mixing(recipe: Recipe, truncates: list[str]) -> Iterator[RecipeFinding]:
    """What cannot go with mixed inputs."""
    path: Path = ("sample", "mix")
    world, train, engine = recipe.environment, recipe.train, recipe.sample.engine
    for is_there, why, hint in (
        (
            bool(truncates),
            "mixes over the model's own distribution, and training scores no other",
            "leave the truncation out",
        ),
        (
            world is not None,
            "was not made for episodes: the environment's tokens stand between",
            "leave one of the two out",
        ),
        (
            engine not in ("auto", "graph"),
            f"mixes inputs step by step, which the engine `{engine}` cannot",
            "say `engine: auto`",
        ),
        (train.baseline == "critic", "would need a critic that sees the mixed inputs", "leave one of the two out"),
        (train.method != "rl", f"is scored by GRPO's loss, which `method: {train.method}` has not", "leave it out"),
        (
            train.credit is not None and train.credit.method == "rredcot",
            "changes the inputs that the values of cuts are read from",
            "leave `train.credit` or `sample.mix` out",
        ),
        (
            recipe.launch.strategy != "ddp",
            f"was not tried with `launch.strategy: {recipe.launch.strategy}`",
            "say `ddp`",
        ),
    ):
        if is_there:
            yield RecipeFinding(path, f"`sample.mix` {why}", hint)


def _model(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    m = recipe.model
    if m.load_in_4bit and m.lora is None:
        said = "add `model.lora: {r: 16}` to train adapters on them"
        yield RecipeFinding(("model", "load_in_4bit"), "weights in 4 bits cannot be trained", said)
    if m.load_in_4bit and (m.gguf_file or m.path.endswith(".gguf")):
        yield RecipeFinding(("model", "load_in_4bit"), "a GGUF model is unpacked when loaded and cannot be in 4 bits")
    if m.head == "float32" and recipe.sample.engine_kind.through_trl:
        said = "`model.head: float32` is of the model in this process, and vLLM samples with a head of its own"
        yield RecipeFinding(("model", "head"), said, "say `sample.engine: auto`, or leave it out")
    if m.head == "float32" and not keeps_whole(recipe.launch.strategy):
        said = f"`model.head: float32` was not tried with `launch.strategy: {recipe.launch.strategy}`"
        yield RecipeFinding(("model", "head"), said, "leave it out, or say `ddp`")
    if m.gguf_file and m.path.endswith(".gguf"):
        yield RecipeFinding(("model", "gguf_file"), "`model.path` names the GGUF file already")
    if m.context is not None and m.path != "builtin:tiny":
        said = f"`model.context` is that of `builtin:tiny`; `{m.path}` was made with one of its own"
        yield RecipeFinding(("model", "context"), said, "leave it out")
    local = m.path.startswith("builtin:") or m.path.endswith(".gguf")
    if m.revision and local:
        yield RecipeFinding(("model", "revision"), f"`model.revision` means nothing for `{m.path}`")
    if m.template_args and recipe.train.trl.get("chat_template_kwargs"):
        said = "`model.template_args` says what the chat template gets"
        yield RecipeFinding(("train", "trl", "chat_template_kwargs"), said, "put all of it there: it reaches every job")
    for name in {"messages", "tools", "documents", "add_generation_prompt"} & set(m.template_args):
        yield RecipeFinding(
            ("model", "template_args", name), f"`{name}` comes from the rows, not from `template_args`", at_key=True
        )
    if recipe.data.prefill and recipe.environment is not None:
        said = "`data.prefill` begins one answer, and an episode of `environment` has several"
        yield RecipeFinding(("data", "prefill"), said, "leave it out, or let `model.chat_template` open every turn so")
    if recipe.data.plain and (m.chat_template or m.template_args):
        key = "chat_template" if m.chat_template else "template_args"
        yield RecipeFinding(
            ("model", key), f"`model.{key}` has no effect with `data.plain: true`", "leave one of the two out"
        )


def _images(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """What does not carry images, or was not tried with them."""
    m, data, train, sample = recipe.model, recipe.data, recipe.train, recipe.sample
    if not data.images:
        if m.kind == "vision":
            said = "name the column of the rows' images in `data.images`"
            yield RecipeFinding(("model", "kind"), "`model.kind: vision` is for rows with images", said)
        for name in ("least", "most"):
            if getattr(data.image_pixels, name) is not None:
                yield RecipeFinding(
                    ("data", "image_pixels", name), "`data.image_pixels` has no effect without `data.images`"
                )
        return
    if m.kind == "text":
        yield RecipeFinding(("model", "kind"), "`model.kind: text` reads no images", "leave it out, or `data.images`")
    least, most = data.image_pixels.least, data.image_pixels.most
    if least is not None and most is not None and least > most:
        yield RecipeFinding(("data", "image_pixels", "least"), f"`least` is {least:,} and `most` {most:,}")
    trl = train.trl
    refused: list[tuple[Path, bool]] = [
        (("data", "plain"), data.plain),
        (("environment",), recipe.environment is not None),
        (("train", "method"), train.method != "rl"),
        (("train", "critic"), train.critic is not None),
        (("train", "credit"), train.credit is not None),
        (("train", "mini_batches"), train.mini_batches > 1),
        (("train", "select"), train.select == "ads"),
        (("train", "recompute"), train.recompute != "no"),
        (("train", "offload"), train.offload != "no"),
        *(((("train", "trl", name)), bool(trl.get(name))) for name in (*UNTRIED, "gradient_checkpointing")),
        (("sample", "mix"), bool(sample.mixed)),
        (("sample", "engine"), sample.engine not in ("auto", "transformers")),
        (("launch", "strategy"), recipe.launch.strategy != "ddp"),
        (("model", "load_in_4bit"), m.load_in_4bit),
        (("model", "gguf_file"), m.gguf_file is not None or m.path.endswith(".gguf")),
        (("model", "path"), m.path.startswith("builtin:") and m.path != "builtin:tiny-vision"),
    ]
    for path, is_asked in refused:
        if is_asked:
            name = ".".join(map(str, path))
            hint = "`builtin:tiny-vision` does" if path == ("model", "path") else f"leave `{name}` or `data.images` out"
            yield RecipeFinding(path, f"`{name}` does not carry images, or was not tried with them", hint)


def _memory(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    train, strategy = recipe.train, recipe.launch.strategy
    for name in ("gradient_checkpointing", "gradient_checkpointing_kwargs"):
        if train.recompute != "no" and train.trl.get(name):
            path: Path = ("train", "trl", name)
            yield RecipeFinding(path, f"`train.recompute: {train.recompute}` is set too", "leave one of the two out")
    if not keeps_whole(strategy) and train.recompute == "selective":
        said = f"`train.recompute: selective` was not tried with `launch.strategy: {strategy}`"
        yield RecipeFinding(("train", "recompute"), said, "`full` goes with it")
    if not keeps_whole(strategy) and train.offload != "no":
        said = f"`train.offload` was not tried with `launch.strategy: {strategy}`"
        yield RecipeFinding(("train", "offload"), said, "leave it out; `train.recompute: full` goes with it")


def _evaluation(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    e, held_out = recipe.eval, recipe.data.eval is not None
    if max(e.k) > e.samples:
        said = f"pass@{max(e.k)} needs {max(e.k)} samples of a prompt, `eval.samples` is {e.samples}"
        yield RecipeFinding(first_set(is_set, ("eval", "k"), ("eval", "samples")), said)
    if e.every is not None and not held_out:
        yield RecipeFinding(("eval", "every"), "`eval.every` needs held-out rows", "name them in `data.eval`")
    if e.expect is not None and not held_out:
        yield RecipeFinding(("eval", "expect"), "`eval.expect` needs held-out rows", "name them in `data.eval`")
    if recipe.stop.patience is not None and (e.every is None or not held_out):
        said = "`stop.patience` needs held-out scores during the run"
        yield RecipeFinding(("stop", "patience"), said, "set `eval.every` and `data.eval`")
    if e.between is not None and e.every is None:
        yield RecipeFinding(
            ("eval", "between"), "nothing is measured between the first and the last step", "set `eval.every`"
        )


def _course(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    run, launch = recipe.run, recipe.launch
    for path, band in ((("gate",), recipe.gate), (("eval", "expect"), recipe.eval.expect)):
        if band is not None and band.pass_1[0] >= band.pass_1[1]:
            low, high = band.pass_1
            said = f"`{'.'.join(path)}.pass@1` is [{low:g}, {high:g}]: nothing lies between"
            yield RecipeFinding((*path, "pass@1"), said, "the lowest share comes first")
    if launch.nodes > 1 and launch.rendezvous is None:
        said = f"{launch.nodes} machines need `launch.rendezvous` to find each other"
        yield RecipeFinding(("launch", "nodes"), said, "say machine 0's `host:port`, such as `node17:29500`")
    if launch.node_rank is not None and launch.node_rank >= launch.nodes:
        yield RecipeFinding(("launch", "node_rank"), f"machine {launch.node_rank} of {launch.nodes}: they count from 0")
    if launch.nodes == 1 and launch.rendezvous is not None:
        yield RecipeFinding(("launch", "rendezvous"), "`launch.rendezvous` has no effect with `launch.nodes: 1`")
    if run.name is not None and (why := why_no_name(run.name)):
        yield RecipeFinding(
            ("run", "name"), f"{shown(visible(run.name, 60))} cannot name a run: {why}", "letters, digits, - _ . +"
        )
    if why := why_no_place(run.dir):
        yield RecipeFinding(("run", "dir"), f"{shown(visible(run.dir, 60))} cannot hold runs: {why}")


def _monitors(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    name, canary, actions = recipe.monitor.gold, recipe.monitor.canary, recipe.monitor.on_alarm
    path = ("monitor", "gold")
    by_monitor = actions if isinstance(actions, dict) else {"": actions}
    if name is None and canary is None and "roll_back" in by_monitor.values():
        said = "`roll_back` goes to the checkpoint with the best gold score, and no gold verifier is named"
        yield RecipeFinding(("monitor", "on_alarm"), said, "name one in `monitor.gold`, or say `on_alarm: pause`")
    elif name is None and "gold" in by_monitor:
        yield RecipeFinding(
            ("monitor", "on_alarm", "gold"), "`gold` needs a second verifier", "name one in `monitor.gold`"
        )
    if "proxy_gold_gap" in recipe.stop.on and name is None:
        yield RecipeFinding(("stop", "on"), "`proxy_gold_gap` needs a second verifier", "name one in `monitor.gold`")
    spec = recipe.verify.get(name) if name is not None else None
    if name is not None and spec is None:
        yield RecipeFinding(
            path, f"`monitor.gold` names no verifier: `{name}`", f"one of {', '.join(f'`{n}`' for n in recipe.verify)}"
        )
    elif spec is not None and (spec.primary or spec.weight):
        said = f"`verify.{name}` is rewarded: what is optimised cannot be the judge of it"
        yield RecipeFinding(path, said, f"say `weight: 0` in `verify.{name}` and leave `primary` to another")
    if name is not None and (recipe.data.eval is None or recipe.eval.every is None):
        yield RecipeFinding(path, "`monitor.gold` compares on held-out rows", "set `data.eval` and `eval.every`")
    if canary is None:
        if isinstance(actions, dict) and "canary" in actions:
            said = "name their file in `monitor.canary`"
            yield RecipeFinding(("monitor", "on_alarm", "canary"), "`canary` needs prompts to ask", said)
    elif canary.verify is not None and canary.verify not in recipe.verify:
        yield RecipeFinding(
            ("monitor", "canary", "verify"),
            f"`monitor.canary.verify` names no verifier: `{canary.verify}`",
            f"one of {', '.join(f'`{n}`' for n in recipe.verify)}",
        )


WHOLE = ("grpo", "extends", "stages", "run", "launch", "model")
"""Keys that are the whole recipe's, and the same in every stage."""


def _stages(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """What no chain can be. Supervised training needs demonstrations, and only it has them."""
    if recipe.train.method == "sft" and not recipe.sft:
        said = "such as `sft: {data: run:NAME, steps: 30, lr: 1e-4}`"
        yield RecipeFinding(("train", "method"), "`method: sft` has no demonstrations", said)
    if recipe.train.method != "sft" and recipe.sft is not None:
        said = f"`sft` has no effect with `train.method: {recipe.train.method}`"
        yield RecipeFinding(("sft",), said, "say `train.method: sft`", at_key=True)
    if recipe.stages is None:
        return
    seen: set[str] = set()
    for i, stage in enumerate(recipe.stages):
        path: Path = ("stages", i)
        if not NAME.fullmatch(stage.name):
            yield RecipeFinding(
                (*path, "name"), f"a stage cannot be named `{stage.name}`", "letters, digits, `_` and `-`"
            )
        if stage.name in seen:
            yield RecipeFinding((*path, "name"), f"two stages are named `{stage.name}`")
        seen.add(stage.name)
        for key in WHOLE:
            if key in stage.keys:
                yield RecipeFinding(
                    (*path, key), f"`{key}` is the whole recipe's: say it outside `stages`", at_key=True
                )
    if recipe.model.lora is not None:
        yield RecipeFinding(
            ("model", "lora"), "`stages` hand on whole weights, and an adapter is none", "leave `lora` out"
        )
    for key in recipe.launch.several:
        yield RecipeFinding(("launch", key), "`stages` run in one process", f"leave `launch.{key}` out")


OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd")
"""Optimizers that were run on shards."""

UNTRIED = ("torch_compile", "use_liger_kernel")


def _strategy(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    launch, trl = recipe.launch, recipe.train.trl
    strategy, path = launch.strategy, ("launch", "strategy")
    if strategy == "ddp":
        return
    optimizer = trl.get("optim", OPTIMIZERS[0])
    if optimizer not in OPTIMIZERS:
        said = f"`{optimizer}` was not made for the shards of `launch.strategy: {strategy}`"
        yield RecipeFinding(("train", "trl", "optim"), said, f"one of {', '.join(OPTIMIZERS)}")
    if keeps_whole(strategy):
        return
    if launch.gpus == 1 and launch.cpu_ranks == 1 and launch.nodes == 1:
        said = f"`launch.strategy: {strategy}` spreads the training over processes, and the recipe asks for one"
        yield RecipeFinding(path, said, "raise `launch.gpus`, or leave `launch.strategy` out")
    if recipe.sample.engine_kind.through_trl:
        said = f"`sample.engine: {recipe.sample.engine}` does not take weights from `launch.strategy: {strategy}`"
        yield RecipeFinding(path, said, "leave one of the two out")
    if recipe.train.mini_batches > 1:
        yield RecipeFinding(
            path,
            f"`train.mini_batches` was not tried with `launch.strategy: {strategy}`, which steps inside its own engine",
            "leave one of the two out",
        )
    if recipe.model.load_in_4bit:
        said = f"`model.load_in_4bit` does not go with `launch.strategy: {strategy}`: weights in 4 bits are not sharded"
        yield RecipeFinding(path, said, "leave one of the two out")
    for name in UNTRIED:
        if trl.get(name):
            yield RecipeFinding(
                ("train", "trl", name), f"`{name}` does not go with `launch.strategy: {strategy}`", "leave it out"
            )
