"""Rules of single losses and of the teacher: what goes with a baseline, with a mask of tokens, and with `train.method: distil`.

How this works: `rules.check_rules` calls each function with a valid recipe and `is_set`, as those of `checking/method.py`. A baseline
has a scale that goes with it and rewards that it can take; `ratio_clip` stands in for the clip of PPO's loss alone; a teacher scores
plain answers in GRPO's trainer, so everything that changes what a token's advantage means is refused beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from grpo_cli.recipe.checking.values import IsSet, RecipeFinding, first_set
from grpo_cli.recipe.sections.fields import Path
from grpo_cli.recipe.sections.method import OWN_TEACHERS
from grpo_cli.recipe.sections.recipe import Recipe

BASELINE: Path = ("train", "baseline")


OWN_SCALE = {"leave_one_out": "none", "length": "none", "token": "none", "pass_k": "group"}
"""The scale that goes with a baseline; `pass_k` divides by a deviation of its own."""


def check_baseline(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Baselines with a scale, rewards or credit that they do not go with."""
    t, at = recipe.train, first_set(is_set, BASELINE, ("train", "algorithm"))
    if (wanted := OWN_SCALE.get(t.baseline)) and t.scale != wanted:
        said = f"`baseline: {t.baseline}` goes with `scale: {wanted}`, got `{t.scale}`"
        yield RecipeFinding(first_set(is_set, ("train", "scale"), BASELINE), said)
    if t.baseline == "pass_k" and t.pass_k is None:
        yield RecipeFinding(at, "`baseline: pass_k` does not say of how many samples the best counts", "`pass_k: 4`")
    elif t.baseline == "pass_k" and (t.pass_k or 0) > recipe.sample.group:
        said = f"`train.pass_k` is {t.pass_k}, and a group has {recipe.sample.group} samples"
        yield RecipeFinding(first_set(is_set, ("train", "pass_k"), at), said, "lower it, or raise `sample.group`")
    elif t.baseline != "pass_k" and t.pass_k is not None:
        said = f"`train.pass_k` has no effect with `baseline: {t.baseline}`"
        yield RecipeFinding(("train", "pass_k"), said, "say `algorithm: pass_k`")
    ours = f"baseline: {t.baseline}" if t.baseline in ("length", "token", "pass_k") else ""
    ours = "scale: mean" if t.scale == "mean" else ours
    at = first_set(is_set, ("train", "scale"), at) if t.scale == "mean" else at
    if ours and t.credit is not None and (t.credit.method != "rredcot" or t.baseline == "token"):
        said = f"`{ours}` gives credit to whole answers, and `train.credit: {t.credit.method}` would add parts of another unit"
        yield RecipeFinding(("train", "credit"), said, f"leave `credit` or `{ours}` out")
    if ours and t.kl.beta > 0 and t.kl.estimator == "k1_reward" and (t.scale == "mean" or t.baseline == "token"):
        why = "a mean below 0 is no divisor" if t.scale == "mean" else "its baseline is of the rewards alone"
        said = f"`k1_reward` takes the KL off the rewards, and `{ours}` does not go with that: {why}"
        yield RecipeFinding(("train", "kl", "estimator"), said, "choose another `kl.estimator`, such as `k2`")
    if t.scale == "mean":
        below = [f"verify.{name}" for name, one in recipe.verify.items() if one.weight < 0]
        below += [f"shaping.{name}" for name, one in recipe.shaping.items() if one.weight and name != "length"]
        below += ["train.overlong"] if t.overlong else []
        below += ["environment.invalid_penalty"] if any(recipe.fines.values()) else []
        for name in below:
            said = f"`scale: mean` divides by the mean reward of a group, and `{name}` may take it below 0"
            yield RecipeFinding(at, said, f"leave `{name}` out, or say another `scale`")
    if t.baseline == "token":
        for wrong, key in (
            (t.prune is not None, "prune"),
            (t.ratio == "sequence", "ratio"),
            (t.reward_combine != "sum", "reward_combine"),
            (recipe.environment is not None, "environment"),
            (recipe.sample.mixed > 0, "sample.mix"),
            (recipe.launch.strategy != "ddp", "launch.strategy"),
        ):
            if wrong:
                said = f"`baseline: token` gives each token an advantage of its own, and was not made for `{key}` as it is here"
                yield RecipeFinding(at, said, f"leave `{key}` or `baseline: token` out")


def check_bound(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """A mask of tokens beside a loss that has a bound of its own, and its keys without it."""
    t = recipe.train
    at = first_set(is_set, ("train", "ratio_clip"), ("train", "algorithm"))
    if t.ratio_clip == "ratio":
        for key, idle in (("delta", None), ("pull", 0)):
            if getattr(t.clip, key) != idle:
                said = f"`train.clip.{key}` has no effect with `ratio_clip: ratio`"
                yield RecipeFinding(("train", "clip", key), said, "say `ratio_clip: tv`, or leave it out")
        return
    if t.loss not in ("dapo", "grpo", "bnpo", "dr_grpo") or t.ratio != "token":
        other = f"loss: {t.loss}" if t.ratio == "token" else f"ratio: {t.ratio}"
        said = f"`ratio_clip: {t.ratio_clip}` masks tokens in place of PPO's clip, which `{other}` has not"
        yield RecipeFinding(at, said, "say `loss: dapo` and `ratio: token`")
    for key in ("low", "high"):
        if is_set(("train", "clip", key)):
            said = f"`train.clip.{key}` bounds the ratio, and `ratio_clip: {t.ratio_clip}` does not look at it"
            yield RecipeFinding(("train", "clip", key), said, "leave it out", idle=("train", "clip", key))
    if t.dead_groups == "drop" and t.pulls_every_row:
        at = first_set(is_set, ("train", "dead_groups"), ("train", "clip", "pull"))
        said = "`dead_groups: drop` would leave `clip.pull` of dropped answers out of the loss"
        yield RecipeFinding(at, said, "say `train.dead_groups: keep`, or `clip.pull: 0`")


def check_distil(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """A teacher without its method, keys that contradict each other, and what a teacher cannot stand beside."""
    train, spec = recipe.train, recipe.distil
    if train.method != "distil":
        if spec is not None:
            said = f"`distil` has no effect with `train.method: {train.method}`"
            yield RecipeFinding(("distil",), said, "say `train.method: distil`", at_key=True)
        return
    assert spec is not None, "the recipe fills it in"
    at: Path = ("distil", "teacher")
    others = [name for name in spec.teacher if name not in OWN_TEACHERS]
    if others and len(spec.teacher) > 1:
        said = f"the model `{others[0]}` teaches all samples: what stands beside it is never asked"
        yield RecipeFinding(at, said, f"say `teacher: {others[0]}`, or leave it out")
    if len(set(spec.teacher)) < len(spec.teacher):
        yield RecipeFinding(at, "a teacher stands twice in the list: the first one is asked")
    if "prompt" in spec.teacher[:-1]:
        yield RecipeFinding(at, "every sample has its `prompt`: teachers behind it are never asked", "put it last")
    if spec.teacher == ["prompt"] and spec.weights == "live":
        said = "the policy behind its own prompt teaches it what it does already"
        yield RecipeFinding(("distil", "weights"), said, "say `weights: ema` or `base`, or another `teacher`")
    if "sibling" in spec.teacher and recipe.sample.group < 2:
        yield RecipeFinding(at, "a group of 1 has no sibling", "raise `sample.group`, or say another `teacher`")
    if spec.when == "dead" and spec.teacher == ["sibling"]:
        said = "with `when: dead` a sample has a teacher where its group is all wrong, and then it has no right sibling"
        yield RecipeFinding(at, said, "say `when: wrong`, or add `reason`")
    if spec.contrast and (bad := [name for name in spec.teacher if name not in ("sibling", "gold")]):
        said = f"`contrast` needs a wrong hint of the same form, which `teacher: {bad[0]}` has not"
        yield RecipeFinding(("distil", "contrast"), said, "it goes with `sibling` and `gold`")
    for key, needs, wrong in (
        ("contrast", "loss: sampled", spec.contrast and spec.loss == "topk"),
        ("direction", "loss: topk", spec.direction != "reverse" and spec.loss == "sampled"),
        ("k", "loss: topk", spec.loss == "sampled" and is_set(("distil", "k"))),
        ("rate", "weights: ema", spec.weights != "ema" and is_set(("distil", "rate"))),
        ("weights", "a teacher that is the policy", bool(others) and is_set(("distil", "weights"))),
    ):
        if wrong:
            said = f"`distil.{key}` goes with {f'`{needs}`' if ':' in needs else needs}"
            idle = ("distil", key) if key in ("k", "rate", "weights") else None
            yield RecipeFinding(("distil", key), said, f"leave `{key}` out", idle=idle)
    if "{hint}" not in spec.template and spec.teacher != ["prompt"] and not others:
        said = "`distil.template` shows no `{hint}`: the teacher would see the prompt alone"
        yield RecipeFinding(("distil", "template"), said, "add `{hint}`, or say `teacher: prompt`")
    if "{prompt}" not in spec.template:
        yield RecipeFinding(("distil", "template"), "`distil.template` has no `{prompt}`", "add it")
    for path, wrong, why, hint in (
        (
            ("environment",),
            recipe.environment is not None,
            "a hint has no place in an episode",
            "leave one of the two out",
        ),
        (
            ("train", "credit"),
            train.credit is not None,
            "`credit` and the teacher would both say what a token is worth",
            "leave it out",
        ),
        (
            BASELINE,
            train.baseline in ("critic", "token"),
            f"`baseline: {train.baseline}` gives each token an advantage of its own",
            "say `baseline: mean`",
        ),
        (
            ("train", "prune"),
            train.prune is not None,
            "`prune` leaves samples out by their advantage, before the teacher is asked",
            "leave it out",
        ),
        (
            ("train", "loss"),
            train.loss not in ("dapo", "cispo"),
            f"`loss: {train.loss}` is a mean over answers, of which some have no teacher",
            "say `loss: dapo`",
        ),
        (
            ("train", "ratio"),
            train.ratio != "token",
            f"`ratio: {train.ratio}` weighs an answer as a whole, and the teacher its tokens",
            "say `ratio: token`",
        ),
        (
            ("train", "kl", "beta"),
            train.kl.beta > 0,
            "the teacher's weights are the anchor",
            "say `kl.beta: 0`; `teacher: prompt` with `weights: base` pulls to the start",
        ),
        (
            ("sample", "mix"),
            recipe.sample.mix is not None,
            "a teacher scores what plain sampling drew",
            "leave one of the two out",
        ),
        (
            ("sample", "engine"),
            recipe.sample.engine_kind.through_trl,
            "vLLM's samples were not tried with a teacher",
            "say `engine: auto`",
        ),
        (
            ("launch", "strategy"),
            recipe.launch.strategy != "ddp",
            f"a teacher was not tried with `launch.strategy: {recipe.launch.strategy}`",
            "say `ddp`",
        ),
        (
            ("train", "control"),
            train.control in ("random", "format_only"),
            f"`control: {train.control}` pays rewards, and hints are made of verdicts",
            "the placebo is `control: shuffled`",
        ),
    ):
        if wrong:
            place = first_set(is_set, path, ("train", "algorithm")) if path[0] == "train" else path
            yield RecipeFinding(place, f"`method: distil`: {why}", hint, at_key=len(path) == 1)
    for name in recipe.train.trl:
        if name in ("use_liger_kernel", "top_entropy_quantile", "use_adaptive_entropy", "entropy_coef"):
            said = f"`{name}` was not tried with `method: distil`"
            yield RecipeFinding(("train", "trl", name), said, "leave it out", at_key=True)
