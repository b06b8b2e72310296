"""Rules of `environment` and `train.credit`: what episodes of many turns cannot go with, and credit for their turns.

How this works: `rules.check_rules` calls `check_episodes` and `check_credit` with a valid recipe; each finding has the reason and a
way out. `CREDITS` holds the words of `grpo explain` for each method of credit, and `ONLY` the keys that each method reads.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from grpo_cli.recipe.checking.values import IsSet, RecipeFinding
from grpo_cli.recipe.sections.fields import Path
from grpo_cli.recipe.sections.inputs import Environment, HarnessSpec
from grpo_cli.recipe.sections.method import acts_on_every_row
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.sections.rewards import kind_class
from grpo_verifiers.verifier import BadOption, Verifier

VLLM = (
    ("mode", "colocate", "a vLLM server takes no seed and no limit for each turn of an episode"),
    ("tensor_parallel_size", 1, "a vLLM shared by processes would need all of them to be at the same turn"),
    ("enable_sleep_mode", False, "vLLM would be woken, and be sent the weights, for each turn of the episodes"),
)
"""Settings of `sample.vllm`: the only value that plays episodes, and why."""


NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


def check_episodes(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Sections that have no meaning for episodes of many turns, and the other way round."""
    world = recipe.environment
    if world is None:
        for i, phase in enumerate(recipe.warmup or []):
            if not phase.demonstration:
                path: Path = ("warmup", i, "demonstration") if is_set(("warmup", i, "demonstration")) else ("warmup", i)
                said = "a template over columns: what a good completion looks like"
                yield RecipeFinding(path, f"`warmup[{i}].demonstration` is missing", said)
        for name, one in recipe.verify.items():
            if one.kind == "environment":
                said = f"`verify.{name}` is the outcome of an environment, and the recipe has none"
                yield RecipeFinding(("verify", name), said, "add `environment: FILE.py:CLASS`", at_key=True)
        return
    given = [
        key for key in ("python", "tools", "trl", "verifiers", "openenv", "harness") if getattr(world, key) is not None
    ]
    if len(given) != 1 and (given or world.mcp is None):
        yield RecipeFinding(
            ("environment",),
            f"`environment` has {' and '.join(f'`{key}`' for key in given) or 'no world'}",
            "say one of `python: FILE.py:CLASS`, `tools: [FILE.py:FUNCTION]`, `trl: FILE.py:CLASS`, `verifiers: ID`, `openenv: URL`,"
            " `mcp: {NAME: {command: [WORDS]}}` and `harness: COMMAND`",
        )
        given = []
    elif not given:
        given = ["mcp"]
    forms = {
        "python": "`FILE.py:CLASS`, `MODULE:CLASS` or `environments:NAME`",
        "trl": "`FILE.py:CLASS` or `MODULE:CLASS`",
        "tools": "`FILE.py:FUNCTION`, `MODULE:FUNCTION` or `python`",
        "openenv": "`http://HOST:PORT` or `MODULE:CLASS`",
    }
    for name in world.named if len(given) == 1 and world.kind in forms else ():
        if not all(name.rpartition(":")[::2]) and (world.kind, name) != ("tools", "python"):
            yield RecipeFinding(("environment", world.kind), f"`{name}` is not {forms[world.kind]}")
    if len(given) == 1 and world.has_calls and is_set(("environment", "role")) and world.role != "tool":
        yield RecipeFinding(
            ("environment", "role"), f"results of tools have the role `tool`, not `{world.role}`", "leave `role` out"
        )
    if len(given) == 1 and world.kind == "tools" and all(one.kind == "environment" for one in recipe.verify.values()):
        yield RecipeFinding(
            ("environment", *given),
            "tools say nothing of how good an answer is, and there is no verifier"
            if given == ["mcp"]
            else "functions say nothing of how good an answer is, and there is no verifier",
            "add one under `verify`: it judges the turn in which the model calls no tool",
        )
    yield from _check_sources(recipe, world, is_set)
    if world.harness is not None:
        yield from _check_harness(recipe, world.harness, is_set)
    if world.plays_itself:
        yield from _check_rows(recipe, world, is_set)
    elif is_set(("environment", "endpoint")):
        said = "`environment.endpoint` has no effect without a `harness`: worlds ask no endpoint"
        yield RecipeFinding(("environment", "endpoint"), said, "leave it out", idle=("environment", "endpoint"))
    if world.history == "last":
        yield RecipeFinding(
            ("environment", "history"),
            "`history: last` would make a row of each turn, and a row is one whole episode here",
            "say `history: full`; what must be remembered can stand in the observation",
        )
    if world.turn_tokens is not None and world.turn_tokens > recipe.sample.max_tokens:
        yield RecipeFinding(
            ("environment", "turn_tokens"),
            f"`environment.turn_tokens` is {world.turn_tokens}, `sample.max_tokens` of the whole episode only"
            f" {recipe.sample.max_tokens}",
        )
    if recipe.train.std_floor == "noise":
        said = "`std_floor: noise` scores answers twice, and the outcome of an episode is not scored again"
        yield RecipeFinding(("train", "std_floor"), said, "say a number, such as 0.1")
    if recipe.data.plain:
        said = "`data.plain` has no turns: only a chat template can put the environment's messages between them"
        yield RecipeFinding(("data", "plain"), said, "leave it out")
    sample = recipe.sample
    if not sample.engine_kind.has_own_seeds:
        yield RecipeFinding(
            ("sample", "engine"),
            f"the engine `{sample.engine}` draws all samples from one stream: the same episode would differ with its neighbours",
            "say `engine: auto`, or leave it out",
        )
    if sample.engine_kind.through_trl:
        for key, allowed, why in VLLM:
            if sample.vllm.get(key, allowed) != allowed:
                yield RecipeFinding(
                    ("sample", "vllm", key), why, f"say `{key}: {str(allowed).lower()}`, or `engine: auto`"
                )
    if recipe.train.select == "screen":
        said = "`select: screen` plays part of a group and goes on with it later, which episodes cannot yet"
        yield RecipeFinding(("train", "select"), said, "choose another, such as `uniform`")


def _check_harness(recipe: Recipe, harness: HarnessSpec, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Its command line and its score."""
    key: Path = ("environment", "harness")
    try:
        words = shlex.split(harness.command)
    except ValueError as err:
        words = []
        yield RecipeFinding((*key, "command"), f"`{harness.command}` is no command line: {err}")
    if not words and harness.command.isspace():
        yield RecipeFinding((*key, "command"), "`command` has no words")
    if harness.score is not None and not all(harness.score.rpartition(":")[::2]):
        said = f"`{harness.score}` is not `FILE.py:FUNCTION` or `MODULE:FUNCTION`"
        yield RecipeFinding((*key, "score"), said)
    if harness.score is None and any(one.kind == "environment" for one in recipe.verify.values()):
        said = "nothing says how good an episode of this program is"
        mend = "add a verifier under `verify`, which judges the last line that it prints, or `score: FILE.py:FUNCTION`"
        yield RecipeFinding(key, said, mend)


def _check_sources(recipe: Recipe, world: Environment, is_set: IsSet) -> Iterator[RecipeFinding]:
    """Servers, an interpreter of its own, and rows that are tasks."""
    key: Path = ("environment", "mcp")
    for name, server in (world.mcp or {}).items():
        if bool(server.command) == bool(server.url):
            said = f"`{name}` has {'both `command` and `url`' if server.url else 'neither `command` nor `url`'}"
            yield RecipeFinding((*key, name), said, "say one: a program that is started, or an address")
        elif server.url and not server.url.startswith(("http://", "https://")):
            yield RecipeFinding((*key, name, "url"), f"`{server.url}` is no address: `http://HOST:PORT/mcp` is one")
        elif is_set((*key, name, "header_env" if server.command else "env")):
            word = "header_env" if server.command else "env"
            said = f"`{word}` is for {'an address' if server.command else 'a program'}"
            yield RecipeFinding((*key, name, word), said, "leave it out", idle=(*key, name, word))
        if NAME.fullmatch(name) is None:
            yield RecipeFinding(
                (*key, name), f"`{name}` is no name of letters, digits, `_` and `-`, which tools begin with"
            )
    if world.mcp is not None and world.kind not in ("tools", "trl"):
        yield RecipeFinding(
            key, f"`mcp` adds tools, and a world of `{world.kind}` has none", "say it alone, or beside `tools` or `trl`"
        )
    for name in ("allow", "scope"):
        if world.mcp is None and is_set(("environment", name)):
            path: Path = ("environment", name)
            yield RecipeFinding(path, f"`environment.{name}` has no effect without `mcp`", "leave it out", idle=path)
    if world.interpreter is not None and world.harness is not None:
        path = ("environment", "interpreter")
        yield RecipeFinding(
            path, "a `harness` names its interpreter in its command", "leave `interpreter` out", idle=path
        )
    tasks = {one.source for one in recipe.data.train if one.source.startswith("verifiers:")}
    if world.is_taskset and tasks != {f"verifiers:{world.verifiers}"}:
        said = f"`{world.verifiers}` plays its own tasks, and the rows are others"
        yield RecipeFinding(
            ("data", "train"), said, f'say `train: "verifiers:{world.verifiers}"` and `prompt: "{{prompt}}"`'
        )
    if tasks and not world.is_taskset:
        yield RecipeFinding(
            ("data", "train"),
            f"`{min(tasks)}` are tasks, and the environment is no taskset",
            "say `environment: {verifiers: ID}`",
        )
    if world.is_taskset and world.verifiers is not None and ":" in world.verifiers:
        said = f"`{world.verifiers}` is a function that loads an environment of 0.1 to 0.3, and a taskset has an id"
        yield RecipeFinding(
            ("environment", "verifiers"), said, "leave `interpreter` out, or name the taskset's package"
        )


def _check_rows(recipe: Recipe, world: Environment, is_set: IsSet) -> Iterator[RecipeFinding]:
    """What rows of their own prompts, and episodes of several of them, cannot go with."""
    what = "a taskset" if world.is_taskset else "a `harness`"
    for name in ("options", "role", "invalid_penalty", "over_limit"):
        if is_set(("environment", name)) and (name != "options" or not world.is_taskset):
            said = f"`environment.{name}` is for worlds that are acted in, and {what} plays by itself"
            yield RecipeFinding(("environment", name), said, "leave it out", idle=("environment", name))
    train = recipe.train
    rows = f"an episode of {what} may be several rows"
    refused: list[tuple[Path, object, str, str]] = [
        (("train", "credit"), train.credit, "and turns are credited within one", "leave `train.credit` out"),
        (("train", "critic"), train.critic, "and a critic reads one", "say another `train.algorithm`"),
        (("train", "kl"), train.kl.beta, "of which the KL would be averaged one by one", "leave `train.kl` out"),
        (("train", "ratio"), train.ratio != "token", "and its ratio would be of one", "say `ratio: token`"),
        (
            ("train", "trl"),
            acts_on_every_row(train.trl),
            "of which that term would be averaged one by one",
            "leave it out",
        ),
        (
            ("warmup",),
            any(not one.demonstration for one in recipe.warmup or ()),
            "of which it shows none",
            "say `demonstration`",
        ),
        (("sample", "engine"), recipe.sample.engine_kind.through_trl, "with limits of their own", "say `engine: auto`"),
    ]
    for path, is_asked, why, mend in refused:
        if is_asked:
            yield RecipeFinding(path, f"{rows}, {why}", mend)


CREDITS = {
    "gigpo": "Turns that saw the same state are compared, in whichever episode of the row: A = A(episode) + weight x"
    " (G - mean G of that state) / F, where G is the return from the turn on, discounted by `gamma` a turn. A(episode) and the part"
    " of the turns have one kind of F: their own deviations with `scale: group`, 1 with `scale: none`, the authors' default and that"
    " of `algorithm: gigpo`; so the weight of the turns does not follow the unit of the reward. A state that only one"
    " turn saw adds nothing: `credit/anchor_share` is the share of turns that are compared, and below .3 the method cannot"
    " help. States are the environment's `state`, else its observations; one that holds the history or a step counter never"
    " repeats. Source: GiGPO, arXiv 2505.10978; the mean outcome is over episodes, `over: steps` is the authors' code.",
    "milestones": "A milestone that the environment names ends a segment. A turn of the k-th segment is worth `reward` x"
    " gamma^(turns until its milestone), in the unfinished tail 0, less the mean over all turns of the row in their k-th"
    " segment; weight x that is added to the episode's advantage. An answer of one turn is cut by `patterns`. Watch"
    " `credit/milestone_without_success`: milestones that pay more than success are farmed. Source: BEACON, arXiv 2605.06078.",
    "planner": "The tokens of a plan get the episode's advantage, those of the acts that of their own subgoal: what its turns"
    " are paid, compared with the subgoal of the same number in the row's other episodes. The plan is the first turn, or all up"
    " to the text of `plan` in a turn; several plans begin a subgoal each, one plan leaves the subgoals to the milestones. A"
    " reconstruction after HiPER, arXiv 2602.16165, whose code is not public.",
    "rredcot": "An answer is cut behind the lines of its thinking. V of a cut is the chance of a right answer right there: the"
    " policy's own probability, after the text of `force`, of the gold and of right spellings of the group. A segment's gain is c = V"
    " behind it - V before it, of the last: 1 or 0 for right or wrong, less V. With `use: weight` A of its tokens is the answer's own"
    " advantage x s / (mean s over the tokens), s = max(c x its sign, 0) + .1 x the largest |c|: it never turns a sign and makes no"
    " signal. Each step scores every cut of each answer whose group has signal: 1.5-2 x GRPO's wall time in the paper, which reports"
    " AIME24 .850 -> .908 and AIME25 .600 -> .583, without seeds. Watch `credit/start_value`: below .02 the model does not know the"
    " text of `force`. The forced form of the value is ours, the weights are the authors'. Source: RREDCoT, arXiv 2606.06475.",
}

ONLY = {
    "gamma": ("gigpo", "milestones"),
    "norm": ("gigpo", "planner"),
    "over": ("gigpo", "milestones"),
    "similarity": ("gigpo",),
    "reward": ("milestones",),
    "order": ("milestones",),
    "patterns": ("milestones",),
    "plan": ("planner",),
    "weight": ("gigpo", "milestones", "planner"),
    "use": ("rredcot",),
    "segments": ("rredcot",),
    "force": ("rredcot",),
    "answers": ("rredcot",),
}
"""The methods that read a key; the others are of all."""

CREDIT: Path = ("train", "credit")
PROGRAMS = ("code", "sql", "command", "metamath", "coq", "python", "json", "judge")
"""Verifiers whose right answer is longer than what can be forced, or one of many."""


def check_credit(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
    """What cannot go with credit for turns, and where it would add nothing."""
    train, spec = recipe.train, recipe.train.credit
    if spec is None:
        return
    for key, methods in ONLY.items():
        if is_set((*CREDIT, key)) and spec.method not in methods:
            others = " and ".join(f"`{name}`" for name in methods)
            said = f"`train.credit.{key}` has no effect with `method: {spec.method}`"
            yield RecipeFinding((*CREDIT, key), said, f"it belongs to {others}", idle=(*CREDIT, key))
    if spec.weight == 0:
        said = "a weight of 0 leaves the episode's advantage alone: nothing is credited to turns"
        yield RecipeFinding((*CREDIT, "weight"), said, "leave `train.credit` out, or raise it")
    if len(set(spec.order)) < len(spec.order):
        yield RecipeFinding((*CREDIT, "order"), "a milestone stands twice in `order`: each counts once")
    for name, pattern in spec.patterns.items():
        try:
            found = re.compile(pattern)
        except re.error as err:
            yield RecipeFinding((*CREDIT, "patterns", name), f"no regular expression: {err}")
            continue
        if found.search("") is not None:
            said = "the expression finds the empty text: this milestone is reached before anything is said"
            yield RecipeFinding((*CREDIT, "patterns", name), said)
    # where there are no turns to tell apart, the method would quietly be plain GRPO
    world = recipe.environment
    if spec.method == "rredcot":
        yield from _check_cuts(recipe)
    elif world is None and spec.method != "milestones":
        said = f"`{spec.method}` compares turns, and without an `environment` an answer is one turn"
        yield RecipeFinding(CREDIT, said, "add an `environment`, or leave `train.credit` out")
    elif world is None and not spec.patterns:
        yield RecipeFinding(
            CREDIT,
            "nothing says where a milestone is reached: there is no `environment`, and `patterns` is empty",
            "add `train.credit.patterns: {NAME: REGULAR EXPRESSION}`, or an `environment` that names milestones",
        )
    elif world is not None and spec.patterns:
        said = "`patterns` cut answers of one turn; here the environment names the milestones"
        yield RecipeFinding((*CREDIT, "patterns"), said, "leave `patterns` or `environment` out")
    elif world is not None and world.max_turns == 1 and (spec.method != "planner" or spec.plan == "first"):
        said = f"an episode of one turn (`environment.max_turns: 1`) has nothing that `{spec.method}` could compare"
        yield RecipeFinding(CREDIT, said, "leave `train.credit` out")
    # one of the two parts would have the unit of the reward, the other none
    wanted = "mean" if train.scale == "none" else "std"
    if spec.method in ONLY["norm"] and train.scale != "batch" and train.turn_norm != wanted:
        yield RecipeFinding(
            (*CREDIT, "norm"),
            f"with `norm: {train.turn_norm}` and `scale: {train.scale}` only one of the episode's advantage and the part of its turns is"
            " divided by a deviation: how much the turns count would follow the unit of the reward",
            f"leave `norm` out (`{wanted}` then), or say `scale: {'none' if wanted == 'std' else 'group'}`",
        )
    if train.ratio == "sequence":
        yield RecipeFinding(
            CREDIT,
            "`ratio: sequence` weighs an answer as a whole: advantages of single turns would be averaged away",
            "say `ratio: sequence_token`, whose value is the answer's and whose gradient is each token's",
        )
    if train.scale == "batch":
        said = "`scale: batch` divides outcomes by the deviation of the whole batch, the part of the turns by its own"
        yield RecipeFinding(CREDIT, said, "say `scale: group` or `none`")
    if spec.over == "steps" and (train.baseline != "mean" or train.reward_combine != "sum"):
        yield RecipeFinding(
            (*CREDIT, "over"),
            "`over: steps` weighs the mean of summed rewards, which this recipe does not subtract",
            "leave `over` out, or say `baseline: mean` and `reward_combine: sum`",
        )
    if train.control is not None and spec.method != "gigpo":
        said = f"a placebo's `{spec.method}` would still be paid for what was truly reached"
        yield RecipeFinding(("train", "control"), said, "leave `train.credit` out of the placebo arm")


def _check_cuts(recipe: Recipe) -> Iterator[RecipeFinding]:
    """What credit by the value of cuts cannot go with."""
    train, spec = recipe.train, recipe.train.credit
    assert spec is not None
    if recipe.environment is not None:
        said = "`rredcot` forces the answer behind a line of thinking, and an episode has no one answer"
        yield RecipeFinding(CREDIT, said, "leave `environment` out, or say `method: gigpo`")
    primary = next(name for name, one in recipe.verify.items() if one.primary)
    kind = recipe.verify[primary].kind
    try:
        has_gold = kind_class(kind).gold_text is not Verifier.gold_text and kind not in PROGRAMS
    except BadOption:
        has_gold = True  # another rule reports what is no kind
    if not has_gold and recipe.environment is None:
        yield RecipeFinding(
            CREDIT,
            f"`rredcot` needs the text of the right answer, and the gold of `verify.{primary}` (`{kind}`) is none",
            "it goes with verifiers of short answers, such as `math`, `numeric`, `exact` and `choice`",
        )
    if spec.use == "value" and train.dead_groups == "resample":
        said = "`dead_groups: resample` asks which groups teach something before the values of cuts are known"
        yield RecipeFinding((*CREDIT, "use"), said, "say `use: weight`, or `dead_groups: drop`")
    if recipe.launch.strategy != "ddp":
        said = f"`rredcot` was not tried with `launch.strategy: {recipe.launch.strategy}`"
        yield RecipeFinding(("launch", "strategy"), said, "say `ddp`")


def describe_credit(name: str) -> dict[str, Any]:
    """What a way of giving credit does."""
    return {"credit": name, "summary": CREDITS[name], "reads": [k for k, who in ONLY.items() if name in who]}
