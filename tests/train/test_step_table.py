"""The table of hooks in `train/step.py` is true: each function exists and is called by the hook that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from trl import GRPOTrainer

import grpo_cli.train.step as step_module

ROOT = Path(step_module.__file__).parents[1]
ROWS = re.findall(r"^    (\w+)\s{2,}(\S+)\s{2,}\S.*$", str(step_module.__doc__), re.MULTILINE)
TABLE = [(hook, target) for hook, target in ROWS if hook in vars(GRPOTrainer) or hasattr(GRPOTrainer, hook)]


def functions(path: Path) -> dict[str, ast.AST]:
    """Functions, methods and classes of a file, by name."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def called(node: ast.AST) -> set[str]:
    """Names that a function calls."""
    found: set[str] = set()
    for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        found.add(name)
    return found


def test_the_table_has_a_row_for_each_hook_of_the_trainer() -> None:
    own = functions(ROOT / "train/trainer.py")
    (trainer,) = (own["Trainer"],)
    hooks = {
        node.name
        for node in ast.iter_child_nodes(trainer)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and hasattr(GRPOTrainer, node.name)
    } - {"__init__"}
    assert {hook for hook, _ in TABLE} == hooks | {"log"}


@pytest.mark.parametrize(("hook", "target"), TABLE)
def test_a_hook_calls_the_function_that_the_table_names(hook: str, target: str) -> None:
    own = functions(ROOT / "train/trainer.py")
    file, _, name = target.rpartition(":")
    if not file:  # a function of a library, written with its module
        name = target.rpartition(".")[2]
    else:
        assert name in functions(ROOT / file)
    assert name in called(own[hook])


def test_each_function_that_the_head_names_is_there() -> None:
    named = re.findall(r"([\w/]+\.py):(\w+)", str(step_module.__doc__))
    assert len(named) > 15
    assert [f"{file}:{name}" for file, name in named if name not in functions(ROOT / file)] == []
