"""Every refusal that `grpo train` can reach before its first step is in a function that `grpo check` walks too, or stands below
with the reason why it cannot be known before.

How this works. Both commands are followed from function to function by what the source names: functions and classes by their
imports, methods by their name on any class that is reached. Too many are reached so rather than too few, by both alike; that
the sentences are the same is for `test_check_says_it.py`. A function that raises one of our errors and that only training
reaches has to be listed; one that is listed and reached by both has to go.
"""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from grpo_cli import errors
from tests.architecture.source import modules, tree

Place = tuple[str, str]
"""A module, and a function or `Class.method` of it."""
CALLED = ("__init__", "__post_init__", "__call__", "__enter__", "__exit__", "__iter__", "__getitem__", "__len__")
STEPS = {
    "Job._steps",
    "Job._end",
    "Job._finalise_checkpoint",
    "Job._mark_failed",
    "Job._abort",
    "Loop.begin",
    "Loop.close",
}
"""Where the first step begins, and what is done behind it."""

LATER = {
    "of the command line, which is not the recipe's": """
        commands.work.train:train display.choose:choose_mode""",
    "the reader of recipes refuses it first, for both": """
        reward.pay:shaping_entries reward.pay:build_terms rollout.engine:check_settings rollout.make:make_engine""",
    "of a run that is resumed, or of a stage behind the first": """
        curriculum.ads:Clusters.from_json measure.clustering:clusters_of_run jobs.train.start:resume_point
        jobs.train.stages:last_weights resilience.checkpoint:restore resilience.checkpoint:read_state
        resilience.contents:refuse_changed resilience.resume:find_run resilience.resume:_changes resilience.resume:_refusal run.find:find_run""",
    "weights: check reads their shapes, and loads none": """
        policy.model:_load_weights policy.model:_load_gguf policy.model:head_in_float32 policy.positions:needs_positions
        train.log_probs:check_agreement train.trainer:Trainer.__init__
        measure.clustering:make_clusters rollout.engine:check_requests errors:out_of_memory""",
    "samples, and what training makes of them": """
        jobs.train.measurements:with_floor jobs.train.measurements:HeldOut.measure policy.warmup:supervise
        train.critic.critic:Critic._step train.credit:Method.credit train.prefer.learn:PairLearner.learn_from""",
    "other processes: ranks, another training, a server": """
        distributed.peers:Peers.explain distributed.peers:Peers.lost distributed.peers:Peers._gone
        distributed.peers:Peers._lost distributed.ranks:Ranks.connect resilience.lock:hold rollout.vllm.engine:starting
        rollout.vllm.offline:open_offline rollout.vllm.server:check_model rollout.vllm.server:lost_in_words
        rollout.vllm.server:_lost""",
    "the run's folder while it is written": """
        resilience.checkpoint:saving run.folder:RunFolder.create run.folder:RunFolder.gone run.folder:_writing
        run.folder:RunFolder.recipe_text findings.run_data:collect jobs.report.page:write_report""",
}


@cache
def _ours() -> tuple[dict[Place, ast.AST], dict[Place, ast.ClassDef], dict[str, dict[str, ast.expr]]]:
    """Functions and methods, classes, and what else stands at the head of a module, by module and name."""
    functions: dict[Place, ast.AST] = {}
    classes: dict[Place, ast.ClassDef] = {}
    values: dict[str, dict[str, ast.expr]] = defaultdict(dict)
    for module in modules():
        for node in tree(module).body:
            if isinstance(node, ast.FunctionDef):
                functions[module, node.name] = node
            elif isinstance(node, ast.ClassDef):
                classes[module, node.name] = node
                for own in node.body:
                    if isinstance(own, ast.FunctionDef):
                        functions[module, f"{node.name}.{own.name}"] = own
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for name in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(name, ast.Name):
                        values[module][name.id] = node.value
    return functions, classes, values


@cache
def _imported(module: str) -> dict[str, Place]:
    """What a module imports of ours, by the name that it has there; a module stands as itself and nothing."""
    found: dict[str, Place] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module in modules():
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                found[one.asname or one.name] = (whole, "") if whole in modules() else (node.module, one.name)
    return found


class Walk:
    """The functions that are reached from one."""

    def __init__(self, start: Place) -> None:
        self.functions, self.classes, self.values = _ours()
        self.reached, self.made, self.named, self.valued = set[Place](), set[Place](), set[str](), set[Place]()
        self.left = [start]
        while self.left:
            place = self.left.pop()
            if place in self.functions and place not in self.reached and place[1] not in STEPS:
                self.reached.add(place)
                own = place[1].partition(".")[0] if "." in place[1] else ""
                if own:
                    self._make((place[0], own))
                self._follow(place[0], self.functions[place], own)

    def _make(self, one: Place) -> None:
        if one not in self.made:
            self.made.add(one)
            for base in self.classes[one].bases:
                if isinstance(base, ast.Name):
                    self._take(one[0], base.id)
            self.left += [(one[0], f"{one[1]}.{name}") for name in (*CALLED, *self.named)]

    def _take(self, module: str, name: str) -> Place | None:
        """Follows a name to what it is; returns the class or module that it is, else None."""
        for _ in range(5):
            if name == "" or (module, name) in self.functions or (module, name) in self.classes:
                break
            if name in self.values[module]:
                if (module, name) not in self.valued:
                    self.valued.add((module, name))
                    self._follow(module, self.values[module][name], "")
                return None
            if name not in _imported(module):
                return None
            module, name = _imported(module)[name]
        if (module, name) in self.classes:
            self._make((module, name))
            return module, name
        self.left.append((module, name))
        return (module, "") if name == "" else None

    def _follow(self, module: str, inside: ast.AST, own: str) -> None:
        for node in ast.walk(inside):
            if isinstance(node, ast.Name):
                self._take(module, node.id)
            elif isinstance(node, ast.Attribute):
                self._attribute(module, node, own)

    def _attribute(self, module: str, node: ast.Attribute, own: str) -> None:
        of = self._take(module, node.value.id) if isinstance(node.value, ast.Name) else None
        if of is not None:
            self.left.append((of[0], f"{of[1]}.{node.attr}" if of[1] else node.attr))
        elif (module, f"{own}.{node.attr}") in self.functions and ast.unparse(node.value) in ("self", "cls"):
            self.left.append((module, f"{own}.{node.attr}"))
        elif node.attr not in self.named:
            self.named.add(node.attr)
            self.left += [(module, f"{name}.{node.attr}") for module, name in self.made]


def _refusing() -> Iterator[Place]:
    """Every function that makes one of our errors."""
    functions, classes, _ = _ours()
    kinds = {name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.UserError)}
    for _ in range(2):
        kinds |= {one[1] for one, node in classes.items() if {ast.unparse(base) for base in node.bases} & kinds}
    for place, node in functions.items():
        if any(isinstance(one, ast.Call) and ast.unparse(one.func) in kinds for one in ast.walk(node)):
            yield place


def _short(places: set[Place]) -> set[str]:
    return {f"{module.removeprefix('grpo_cli.')}:{name}" for module, name in places}


def test_what_only_training_refuses_is_known_only_then() -> None:
    train = Walk(("grpo_cli.commands.work.train", "train")).reached
    check = Walk(("grpo_cli.commands.measure", "check")).reached
    refusing = set(_refusing()) & train
    assert len(refusing & check) > 100
    listed = {name for names in LATER.values() for name in names.split()}
    assert _short(refusing - check) == listed


def test_a_recipe_is_read_by_one_function() -> None:
    for command in ("work.train", "measure"):
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(tree(f"grpo_cli.commands.{command}"))
            if isinstance(node, ast.Call)
        }
        assert {"load_with_folder", "pinned"} <= calls
