"""Rules of `train` and of `prefer`: losses, dead groups, schedules, `alive_by`, the critic, `select: ads`, keys of one method only.

How this works: `rules.check_rules` calls each function with a valid recipe and `is_set`, which separates what a file or flag holds
from defaults and presets. Each yields one finding for each contradiction, at the key that the user wrote. `check_rows` and
`never_moves` belong to the same rules, and are asked again once the number of rows is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from grpo_cli.errors import DataError
from grpo_cli.recipe.checking.values import IsSet, RecipeFinding, first_set, unknown
from grpo_cli.recipe.sections.course import DEEPSPEED
from grpo_cli.recipe.sections.fields import Path, dotted
from grpo_cli.recipe.sections.method import AdsSpec, CriticSpec, acts_on_every_row, whole_only
from grpo_cli.recipe.sections.recipe import Recipe

ALIVE_BY: Path = ("train", "alive_by")
FLOOR: Path = ("train", "std_floor")


def check_alive_by(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Names that are no verifiers or have no weight, and a floor of noise that nothing is compared with."""
    train = recipe.train
    named = train.alive_by if isinstance(train.alive_by, list) else []
    for at, name in enumerate(named):
        path = (*ALIVE_BY, at)
        if name not in recipe.verify:
            hint = unknown(name, recipe.verify, "`verify`")
            yield RecipeFinding(path, f"`train.alive_by` names no verifier `{name}`", hint)
        elif not recipe.verify[name].weight:
            said = f"`train.alive_by` names `{name}`, whose weight is 0: it pays nothing that a group could be alive by"
            yield RecipeFinding(path, said, f"give `verify.{name}` a weight, or leave it out")
    if named and not any(one.primary for name, one in recipe.verify.items() if name in named):
        primary = next(name for name, one in recipe.verify.items() if one.primary)
        if recipe.verify[primary].weight and recipe.combine.method != "by":
            yield RecipeFinding(
                ALIVE_BY,
                f"`train.alive_by` leaves out the primary verifier `{primary}`: groups that it alone tells apart would teach nothing",
                f"such as `[{', '.join([primary, *named])}]`",
            )
    if train.std_floor != "noise":
        return
    if not train.runs_grpo or train.baseline == "critic":
        other = f"method: {train.method}" if not train.runs_grpo else "baseline: critic"
        yield RecipeFinding(FLOOR, f"`std_floor: noise` has no effect with `{other}`", "leave it out")
    elif train.reward_combine != "sum":
        yield RecipeFinding(
            FLOOR,
            f"`std_floor: noise` is one number in units of the reward, and `{train.reward_combine}` scales each part by itself",
            "say `reward_combine: sum`, or a number",
        )


LEAST_ROWS = 2000
"""With fewer rows clusters are too small for a window to move, or too few to be useful."""
MOST_CLUSTERS, ROWS_EACH = 64, 64
CROSSINGS = 4
"""A reset comes after as many crossings of a cluster at least."""


def cluster_count(n_rows: int) -> int:
    """The default number of clusters for this many rows."""
    return max(1, min(MOST_CLUSTERS, n_rows // ROWS_EACH))


def check_ads(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Keys of ADS without it, and what would take its windows away from the boundary."""
    train = recipe.train
    if train.select != "ads":
        for key in ("ads", "ads_ok"):
            if getattr(train, key):
                said = f"`train.{key}` has no effect with `select: {train.select}`"
                yield RecipeFinding(("train", key), said, "say `select: ads`, or leave it out")
        return
    if train.method == "sft":
        said = "`method: sft` samples no rows, and `select: ads` goes by their samples"
        yield RecipeFinding(("train", "select"), said, "leave `select` out")
    if train.dead_groups == "resample":
        at: Path = next(
            (p for p in (("train", "dead_groups"), ("train", "algorithm")) if is_set(p)), ("train", "dead_groups")
        )
        said = "`dead_groups: resample` draws other rows where a window should move on from its own"
        yield RecipeFinding(at, said, "say `dead_groups: drop`")
    active = (train.ads or AdsSpec()).active
    if recipe.sample.prompts < active:
        said = f"{recipe.sample.prompts} prompts a step leave no row for each of {active} clusters"
        yield RecipeFinding(("sample", "prompts"), said, f"raise it to {active} or more, or lower `train.ads.active`")


def check_rows(recipe: Recipe, n_rows: int) -> None:
    """Refuse what cannot work with so many rows, but for `train.ads_ok`.

    Raises:
        DataError: too few rows for windows to move, or resets that come before one has.
    """
    train = recipe.train
    if train.select != "ads" or train.ads_ok:
        return
    if n_rows < LEAST_ROWS:
        raise DataError(
            f"`select: ads` needs {LEAST_ROWS:,} training rows or more, there are {n_rows:,}: its windows would have no way"
            " to go",
            hint="say `select: auto`, or `train.ads_ok: true` to try it all the same",
        )
    spec = train.ads or AdsSpec()
    clusters = spec.clusters or cluster_count(n_rows)
    active = min(spec.active, clusters)
    way = n_rows / clusters - recipe.sample.prompts / active
    least = round(CROSSINGS * way * clusters / active)
    if spec.reset is not None and spec.reset < least:
        raise DataError(
            f"`train.ads.reset: {spec.reset}` takes the windows back before they have crossed their clusters:"
            f" {CROSSINGS} crossings of {clusters} clusters of {n_rows:,} rows take {least:,} steps",
            hint="leave `reset` out, or say `train.ads_ok: true` to try it all the same",
        )


BASELINE: Path = ("train", "baseline")


def check_critic(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Keys that have no meaning with a critic, or none without one."""
    train, sample = recipe.train, recipe.sample
    if train.baseline != "critic":
        if train.critic is not None:
            said = f"`train.critic` has no effect with `baseline: {train.baseline}`"
            yield RecipeFinding(("train", "critic"), said, "say `algorithm: ppo`, or leave it out")
        if train.kl.estimator == "k1_token":
            said = "`k1_token` takes the KL off the reward of each token, which only a critic tells apart"
            yield RecipeFinding(("train", "kl", "estimator"), said, "say `algorithm: ppo`, or `estimator: k1_reward`")
        if sample.group < 2:
            said = f"a group of 1 is its own mean: with `baseline: {train.baseline}` every advantage is 0"
            yield RecipeFinding(("sample", "group"), said, "raise `group` to 2 or more, or say `algorithm: ppo`")
        return
    at = next((path for path in (("train", "algorithm"), BASELINE) if is_set(path)), BASELINE)
    for key, wanted in (("scale", "none"), ("dead_groups", "keep"), ("ratio", "token"), ("reward_combine", "sum")):
        if (value := getattr(train, key)) != wanted:
            said = f"a critic gives each token an advantage of its own: `{key}: {value}` has no meaning for it"
            yield RecipeFinding(("train", key), said, f"say `{key}: {wanted}`, or leave it out beside `algorithm: ppo`")
    for key in ("prune", "credit"):
        if getattr(train, key) is not None:
            said = f"`train.{key}` compares the samples of a group, a critic does not"
            yield RecipeFinding(("train", key), said, f"leave `{key}` out")
    if train.select not in ("uniform", "easy_to_hard"):
        said = f"`select: {train.select}` goes by which groups have a signal, and with a critic all have"
        yield RecipeFinding(("train", "select"), said, "say `select: uniform`")
    if train.kl.beta > 0 and train.kl.estimator == "k1_reward":
        said = "`k1_reward` takes the KL off the reward of a whole answer; with a critic each token pays its own"
        yield RecipeFinding(("train", "kl", "estimator"), said, "say `estimator: k1_token`")
    if train.control == "shuffled" and sample.group == 1:
        said = "`control: shuffled` deals rewards out anew within a group, and a group of one keeps its own: no placebo"
        yield RecipeFinding(("train", "control"), said, "say `control: random`, or raise `sample.group`")
    if sample.prompts * sample.group % 2:
        said = f"{sample.prompts} x {sample.group} completions a step are an odd number"
        yield RecipeFinding(("sample", "prompts"), said, "make it even")
    if recipe.launch.strategy in DEEPSPEED:
        said = f"a critic was not tried with `launch.strategy: {recipe.launch.strategy}`"
        yield RecipeFinding(("launch", "strategy"), said, "say `ddp` or `fsdp2`")
    spec = train.critic
    if spec is None:
        yield RecipeFinding(at, "`baseline: critic` needs `train.critic`", "such as `critic: {}`")
        return
    if spec.share and spec.source != "policy":
        said = f"a head on the policy's hidden state is no copy of `{spec.source}`"
        yield RecipeFinding(("train", "critic", "share"), said, "leave `from` or `share` out")
    # of `train.epochs` the steps are known with the rows (`arithmetic.plan`)
    if recipe.train.steps and (spec.warmup_steps or 0) >= recipe.train.steps:
        yield RecipeFinding(
            ("train", "critic", "warmup_steps"), never_moves(spec, recipe.train.steps), "lower `warmup_steps`"
        )


def never_moves(spec: CriticSpec, steps: int) -> str:
    """What is wrong with a critic that learns alone all along."""
    return f"the policy would never move: {spec.warmup_steps} steps of warm-up in a run of {steps}"


def check_loss(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    t = recipe.train
    at_loss = first_set(is_set, ("train", "ratio"), ("train", "loss"), ("train", "algorithm"))
    if t.ratio != "token" and t.loss in ("dapo", "bnpo"):
        said = f"`ratio: {t.ratio}` with `loss: {t.loss}` weighs an answer by its length"
        yield RecipeFinding(at_loss, said, "GSPO is `loss: grpo`, or say `algorithm: gspo`")
    if t.ratio != "token" and t.loss in ("cispo", "sapo", "vespo"):
        yield RecipeFinding(at_loss, f"`loss: {t.loss}` is defined for `ratio: token`, got `{t.ratio}`")
    if t.loss in ("luspo", "gmpo") and t.ratio != "sequence":
        said = f"`loss: {t.loss}` needs `ratio: sequence`, got `{t.ratio}`"
        yield RecipeFinding(at_loss, said, f"say `algorithm: {t.loss}`")
    if t.loss == "cispo" and t.clip.cap is None:
        yield RecipeFinding(
            first_set(is_set, ("train", "clip"), ("train", "loss")),
            "`loss: cispo` needs `train.clip.cap`, the absolute cap of the ratio",
            "5.0 is what TRL and ScaleRL use",
        )
    if t.clip.cap is not None and t.loss != "cispo":
        said = f"`train.clip.cap` belongs to `loss: cispo`, not `{t.loss}`"
        yield RecipeFinding(("train", "clip", "cap"), said, "the bound of the other losses is `train.clip.high`")
    if t.prune is not None:
        path: Path = ("train", "prune")
        if t.prune.keep >= recipe.sample.group:
            said = f"`train.prune.keep` is {t.prune.keep} of a group of {recipe.sample.group}: nothing is left out"
            yield RecipeFinding((*path, "keep"), said)
        if t.dead_groups == "keep" or t.pulls_every_row or (t.kl.beta > 0 and t.kl.estimator != "k1_reward"):
            said = "pruned answers take no part in the loss, a KL term or `dead_groups: keep` wants all of them"
            yield RecipeFinding(path, said, "say `train.dead_groups: drop` and `kl.beta: 0`")
        for name in acts_on_every_row(t.trl):
            said = f"pruned answers take no part in the loss, `{name}` acts on all of them"
            yield RecipeFinding(path, said, f"leave `prune` or `train.trl.{name}` out")
        if t.loss == "bnpo":
            said = "`loss: bnpo` averages over each micro-batch and has no meaning for pruned ones"
            yield RecipeFinding(path, said, "say `loss: dapo`")
        if t.prune.by == "variance" and t.reward_combine != "sum":
            yield RecipeFinding(
                (*path, "by"), f"`by: variance` compares summed rewards, `{t.reward_combine}` never forms them"
            )
    if t.reward_combine == "sum":
        return
    if t.control is not None:
        yield RecipeFinding(
            ("train", "control"), f"`train.control` replaces the summed reward, which `{t.reward_combine}` never forms"
        )
    if t.baseline != "mean" or t.scale != "group":
        further = " and then over the batch" if t.reward_combine == "normalise_then_sum" else ""
        yield RecipeFinding(
            first_set(is_set, ("train", "reward_combine")),
            f"`reward_combine: {t.reward_combine}` scales each part within its group{further}",
            "leave `baseline` and `scale` as they are",
        )
    if t.kl.beta > 0 and t.kl.estimator == "k1_reward":
        yield RecipeFinding(
            first_set(is_set, ("train", "kl", "estimator"), ("train", "reward_combine")),
            f"`k1_reward` takes the KL off the summed reward, and `{t.reward_combine}` never forms that sum",
            "choose another `kl.estimator`, such as `k3_corrected`",
        )
    if recipe.combine.method != "sum":
        yield RecipeFinding(
            first_set(is_set, ("combine", "method"), ("train", "reward_combine")),
            f"`combine: {recipe.combine.method}` has no effect on `reward_combine: {t.reward_combine}`, which takes the"
            " scores of the verifiers apart: what is gated would be paid",
            "leave `combine` out, or say `reward_combine: sum`",
        )


def check_split(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Parts of the advantage that name no verifier, none twice, and none that the reward counts already."""
    train, path = recipe.train, ("train", "split")
    if train.reward_combine != "split":
        if train.split:
            said = f"`train.split` has no effect with `reward_combine: {train.reward_combine}`"
            yield RecipeFinding(path, said, "say `reward_combine: split`", at_key=True)
        return
    if len(train.split) < 2:
        yield RecipeFinding(
            path if train.split else ("train", "reward_combine"),
            "`reward_combine: split` needs two parts: with one it is plain GRPO",
            "such as `split: {task: {verifiers: [math]}, consistency: {verifiers: [agrees], weight: 0.5}}`",
        )
        return
    seen = dict[str, str]()
    for at, (name, part) in enumerate(train.split.items()):
        for place, verifier in enumerate(part.verifiers):
            here: Path = (*path, name, "verifiers", place)
            if verifier not in recipe.verify:
                hint = unknown(verifier, recipe.verify, "`verify`")
                yield RecipeFinding(here, f"`train.split.{name}` names no verifier `{verifier}`", hint)
            elif verifier in seen:
                said = f"`{verifier}` stands in the part `{seen[verifier]}` already: it would count twice"
                yield RecipeFinding(here, said, "leave it out of one of them")
            elif at and recipe.verify[verifier].weight:
                said = f"`{verifier}` has a weight in the reward, which is the first part, and stands in `{name}`"
                yield RecipeFinding(("verify", verifier, "weight"), said, "leave `weight` out, or say 0")
            seen.setdefault(verifier, name)
    first, own = next(iter(train.split.items()))
    for verifier, one in recipe.verify.items():
        if one.weight and verifier not in own.verifiers and verifier not in seen:
            said = f"`{verifier}` is paid, and stands in no part"
            yield RecipeFinding((*path, first, "verifiers"), said, f"add it to `{first}`, or give it `weight: 0`")
    if not any(one.primary and one.weight and name in own.verifiers for name, one in recipe.verify.items()):
        said = f"the primary verifier is not in `{first}`: the first part is the reward, and says what is right"
        yield RecipeFinding((*path, first, "verifiers"), said, "put it there, with a weight")


def check_dead_groups(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    t = recipe.train
    if t.dead_groups == "drop" and t.kl.beta > 0 and t.kl.estimator != "k1_reward":
        yield RecipeFinding(
            first_set(is_set, ("train", "dead_groups"), ("train", "kl", "beta")),
            "`dead_groups: drop` would leave the KL term of dropped answers out of the loss",
            "say `train.dead_groups: keep` with `kl.beta` above 0",
        )
    acting = acts_on_every_row(t.trl)
    if t.dead_groups == "drop" and acting:
        said = f"`dead_groups: drop` would leave dropped answers out of what `{acting[0]}` acts on"
        yield RecipeFinding(("train", "trl", acting[0]), said, "say `train.dead_groups: keep` beside it")
    micro = recipe.sample.micro_batch
    parts = recipe.sample.prompts * recipe.sample.group // micro if micro else 1
    for name in whole_only(t.trl) if parts > 1 else ():
        yield RecipeFinding(
            ("train", "trl", name),
            f"`{name}` is taken over one micro-batch at a time: {parts} of them would train on something else than one",
            "leave `sample.micro_batch` out",
        )


def check_schedule(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    t = recipe.train
    if not t.steps and t.epochs is None:
        yield RecipeFinding(
            first_set(is_set, ("train", "steps"), ("train",)),
            "`train.steps: 0` trains nothing"
            if is_set(("train", "steps"))
            else "`train` says neither `steps` nor `epochs`",
            "`train.steps: 200`, or `train.epochs: 1` for every row once",
        )
    if t.steps and t.epochs is not None:
        yield RecipeFinding(
            first_set(is_set, ("train", "epochs")),
            f"`train.epochs: {t.epochs:g}` and `train.steps: {t.steps}` both say how long to train",
            "leave one of them out (`train.epochs: null`, or `train.steps: 0`)",
        )
    if "lr_scheduler_type" in t.trl and is_set(("train", "schedule")):
        yield RecipeFinding(
            ("train", "trl", "lr_scheduler_type"),
            "`train.schedule` is said too",
            "leave one of the two out",
            idle=("train", "schedule"),
        )


RL_ONLY = (
    *(
        "algorithm",
        "loss",
        "ratio",
        "ratio_clip",
        "baseline",
        "pass_k",
        "scale",
        "clip",
        "kl",
        "prune",
        "alive_by",
        "overlong",
    ),
    *("mask_truncated", "credit", "split"),
)
"""Keys of `train` that shape advantages or their loss."""
DRAWN_ONLY: dict[Path, str] = {
    ("prefer", "pairs_a_row"): "`grpo pairs --pairs-a-row` says it",
    ("prefer", "length_gap"): "`grpo pairs --length-gap` says it",
    ("train", "epochs"): "say `train.steps` and `prefer.epochs`",
    ("train", "select"): "leave `train.select` out",
    ("train", "dead_groups"): "leave `train.dead_groups` out",
}
"""Keys for how a step draws samples and makes pairs of them, and what helps where pairs come from a file."""
LEAST_SIMPO_BETA = 0.5


def check_prefer(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Settings that contradict preferences, and settings of preferences without the method."""
    if recipe.train.method != "prefer":
        if recipe.prefer is not None:
            said = f"`prefer` has no effect with `train.method: {recipe.train.method}`"
            yield RecipeFinding(("prefer",), said, "say `train.method: prefer`", at_key=True)
        return
    prefer = recipe.prefer
    assert prefer is not None
    loss = prefer.loss
    if prefer.gamma is not None and loss != "simpo":
        yield RecipeFinding(("prefer", "gamma"), f"`prefer.gamma` belongs to `loss: simpo`, not `{loss}`")
    if prefer.sft and loss not in ("dpo", "ipo", "irpo"):
        why = "ORPO has a loss on the winners already" if loss == "orpo" else f"`{loss}` has no such term"
        yield RecipeFinding(("prefer", "sft"), f"`prefer.sft` goes with `dpo`, `ipo` and `irpo`: {why}")
    if prefer.sft == 0 and loss == "irpo":
        yield RecipeFinding(("prefer", "sft"), "`irpo` without `sft` is `dpo`", "say `loss: dpo`")
    if loss == "simpo" and prefer.beta is not None and prefer.beta < LEAST_SIMPO_BETA:
        yield RecipeFinding(
            ("prefer", "beta"),
            f"`prefer.beta` {prefer.beta:g} is a value for DPO: SimPO weighs mean log-probs a token and hardly moves below"
            f" {LEAST_SIMPO_BETA:g}",
            "2 to 10 is what its authors use",
        )
    if prefer.micro_batch is not None and prefer.batch % prefer.micro_batch:
        said = f"`prefer.micro_batch` {prefer.micro_batch} does not divide `prefer.batch` {prefer.batch}"
        yield RecipeFinding(("prefer", "micro_batch"), said)
    if prefer.micro_batch == 1 and loss == "kto":
        said = "`kto` takes its KL from each prompt with another answer of the micro-batch: it needs two"
        yield RecipeFinding(("prefer", "micro_batch"), said)
    if prefer.data is not None and prefer.data.source.startswith("run:"):
        name = prefer.data.source.removeprefix("run:")
        said = f"`{prefer.data.source}` gives single answers, and `prefer.data` takes pairs"
        yield RecipeFinding(("prefer", "data"), said, f"`grpo pairs {name}` writes them into a file to name here")
    for path, hint in DRAWN_ONLY.items() if prefer.data is not None else ():
        if is_set(path):
            said = f"`{dotted(path)}` has no effect with `prefer.data`: nothing is drawn"
            yield RecipeFinding(path, said, hint, at_key=True, idle=path)
    for key in (*RL_ONLY, "reward_combine", "inner_epochs", "mini_batches", "recompute", "offload"):
        if is_set(("train", key)):
            hint = "say `prefer.epochs`" if key == "inner_epochs" else f"leave `train.{key}` out"
            said = f"`train.{key}` has no effect with `method: prefer`"
            yield RecipeFinding(("train", key), said, hint, at_key=True, idle=("train", key))
    for name in recipe.train.trl:
        if name != "chat_template_kwargs":
            said = f"`{name}` is set on GRPO's trainer, which `method: prefer` does not run"
            yield RecipeFinding(("train", "trl", name), said, at_key=True)
    if recipe.train.control in ("random", "format_only"):
        said = f"`control: {recipe.train.control}` pays rewards, and pairs are made of verdicts"
        yield RecipeFinding(("train", "control"), said, "the placebo of pairs is `control: shuffled`")
    if recipe.sample.engine_kind.through_trl:
        said = "vLLM is driven through TRL's GRPO trainer, which `method: prefer` does not run"
        yield RecipeFinding(("sample", "engine"), said, "say `engine: auto`")
    if recipe.environment is not None:
        said = "pairs of episodes would learn what the environment said too"
        yield RecipeFinding(("environment",), said, "leave `environment` out, or say `method: rl`", at_key=True)
    for key in recipe.launch.several:
        yield RecipeFinding(("launch", key), "`method: prefer` runs in one process", f"leave `launch.{key}` out")
