"""The conventions of reward functions: finding a function, reading its signature, and making the arguments of a call.

completion                         ours, and rubric functions (`state`, `info`, `task`, `parser`)
completions                        TRL: lists, with `prompts`, `completion_ids`, `log_extra`, `log_metric`
solution_str, solution_strs        verl: `data_source`, `ground_truth`, `extra_info`

How this works: `find` imports `module:function` or `file.py:function`. `Signature.of` reads its parameters once and names the
columns that a row must have. `Signature.of_one` and `of_many` make the arguments of a call, and `derive` adds to a row what
other trainers put there. `most_of` reads the source, without running it, for the greatest reward that the function can return.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import operator
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Literal, NamedTuple

from grpo_verifiers.strict_json import RepeatedKey, loads


class BadFunction(Exception):
    """The function cannot be found or called as a verifier."""


def find(spec: str) -> Callable[..., Any]:
    """The function of `module:function` or `file.py:function`.

    Raises:
        BadFunction: there is none, or it cannot be called.
    """
    where, _, name = spec.rpartition(":")
    if where.endswith(".py"):
        paths = [
            os.path.join(folder, os.path.expanduser(where)) for folder in [*sys.path, ""]
        ]  # beside the recipe first
        path = next(filter(os.path.isfile, paths), None)
        if path is None:
            raise BadFunction(f"no file `{where}` beside the recipe or here")
        found = importlib.util.spec_from_file_location("_grpo_custom", path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        try:
            found.loader.exec_module(module)
        except ImportError as err:
            if "no known parent package" not in str(err):
                raise
            raise BadFunction(
                f"`{where}` imports from its package, and a file by itself has none: name it as a module, `PACKAGE.MODULE:{name}`"
            ) from err
    else:
        module = importlib.import_module(where)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            known = sorted(
                n
                for n, v in vars(module).items()
                if (inspect.isfunction(v) or inspect.isclass(v)) and v.__module__ == module.__name__ and n[0] != "_"
            )
            raise BadFunction(f"`{where}` has no `{name}`; it has {', '.join(known[:8]) or 'no functions or classes'}")
        target = getattr(target, part)
    if not callable(target):
        raise BadFunction(f"`{spec}` is a {type(target).__name__}, not a function or class")
    return target  # type: ignore[no-any-return]


def place_of(function: Callable[..., Any]) -> str:
    """`reward.py:12`, where the function stands; empty where that is not known."""
    code = code_of(function)
    if code is None:
        return ""
    path = os.path.relpath(code.co_filename)
    return f"{code.co_filename if path.startswith('..') else path}:{code.co_firstlineno}"


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code of a function, of what it wraps, or of the `__call__` of an object."""
    inner: Any = inspect.unwrap(function)
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    inner = getattr(inner, "__func__", inner)
    if not hasattr(inner, "__code__"):
        inner = getattr(type(inner), "__call__", None)  # noqa: B004 - the function itself is wanted
    code = getattr(inner, "__code__", None)
    return code if isinstance(code, CodeType) else None


def names_keys_of_messages(function: Callable[..., Any]) -> bool:
    """Whether the code has the constant `content`, a key of messages: then it takes completions as lists of messages."""
    code = code_of(function)
    waiting = [code] if code is not None else []
    while waiting:
        one = waiting.pop()
        if "content" in one.co_consts:
            return True
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return False


Shape = Literal["one", "many"]

OF_ONE = ("completion", "solution_str", "state")
OF_MANY = {"completions": "", "solution_strs": "", "completion_ids": ""}
PLURAL = {"data_sources": "data_source", "ground_truths": "ground_truth", "extra_infos": "extra_info"}
"""verl's batch form: the column behind each list."""
OURS = {
    *OF_ONE, *OF_MANY, *PLURAL, "prompt", "prompts", "row", "group", "trainer_state", "log_extra", "log_metric", "parser",
}  # fmt: skip
"""Parameters that are not columns of the row."""


class FunctionCall(NamedTuple):
    """One completion with what it answers; `token_ids` only where it was sampled here."""

    completion: str
    prompt: str
    row: Mapping[str, Any]
    token_ids: Sequence[int] | None = None


class NotHere(Exception):
    """The function needs an argument that this job does not have."""


@dataclass(frozen=True)
class Signature:
    """Which arguments a function takes. `required` are columns that a row must have."""

    shape: Shape
    names: frozenset[str]
    takes_all: bool
    required: tuple[str, ...]
    is_verl: bool

    @classmethod
    def of(cls, function: Callable[..., Any], name: str, *, has_parser: bool = False) -> Signature:
        """The signature, if it is one of a reward function.

        Raises:
            BadFunction: it is not; the message names what is missing.
        """
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as err:
            raise BadFunction(f"`{name}` has no signature that can be read") from err
        only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        if only:
            raise BadFunction(f"`{name}` takes `{only[0]}` by position only; columns are passed by name")
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names = {p.name for p in named}
        if not names & {*OF_ONE, *OF_MANY}:
            raise BadFunction(
                f"`{name}` takes no parameter `completion` (one text), `completions` (lists, as in TRL) or"
                f" `solution_str` (as in verl); it takes {', '.join(f'`{p}`' for p in names) or 'nothing'}"
            )
        needed = {p.name for p in named if p.default is p.empty}
        if "trainer_state" in needed:
            raise BadFunction(
                f"`{name}` wants `trainer_state`, which exists only inside a trainer: give it a default, since the same"
                " function judges held-out rows and files"
            )
        if "parser" in needed and not has_parser:
            raise BadFunction(
                f"`{name}` wants a `parser`: name the environment that has it (`module:load_environment`) instead"
            )
        return cls(
            "many" if names & {*OF_MANY} and not names & {*OF_ONE} else "one",
            frozenset(names),
            any(p.kind is p.VAR_KEYWORD for p in parameters),
            tuple(p.name for p in named if p.name in needed and p.name not in OURS and p.name not in DERIVED),
            bool(names & {"solution_str", "solution_strs"}),
        )

    @property
    def derived(self) -> tuple[str, ...]:
        """Parameters that other trainers make out of a row's columns."""
        wanted = {PLURAL.get(name, name) for name in self.names}
        return tuple(name for name in DERIVED if name in wanted)

    def of_one(self, call: FunctionCall, extra: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
        """The arguments for one completion."""
        call = _own(call)
        completion, prompt = _turns(call, messages)
        have: dict[str, Any] = {
            **extra, **call.row, "row": dict(call.row), "prompt": prompt, "completion": completion, "solution_str": call.completion,
        }  # fmt: skip
        if "state" in self.names:
            state = {key: have.get(key) for key in ("prompt", "completion", "answer", "info", "task")}
            have["state"] = {"responses": [], "turn": 1, **state}
        wanted = self.names | (set(call.row) if self.takes_all else set())
        return {name: have[name] for name in wanted if name in have}

    def of_many(self, calls: Sequence[FunctionCall], extra: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
        """The arguments for a batch: a list for each column.

        Raises:
            NotHere: the function needs token ids, but there are none.
        """
        calls = [_own(call) for call in calls]
        turns = [_turns(call, messages) for call in calls]
        columns = dict.fromkeys(name for call in calls for name in call.row)
        lists: dict[str, Any] = {name: [call.row.get(name) for call in calls] for name in columns}
        lists |= {many: lists[one] for many, one in PLURAL.items() if one in lists}
        lists |= {
            "row": [dict(call.row) for call in calls],
            "completions": [completion for completion, _ in turns],
            "prompts": [prompt for _, prompt in turns],
            "solution_strs": [call.completion for call in calls],
        }
        ids = [call.token_ids for call in calls]
        if None not in ids:
            lists["completion_ids"] = [list(one or ()) for one in ids]
        elif "completion_ids" in self.names:
            raise NotHere("it wants `completion_ids`, which exist only where completions are sampled")
        lists = {**extra, **lists}
        of_all = {"prompts", "completions", "completion_ids", *columns, *extra} if self.takes_all else set()
        return {name: lists[name] for name in self.names | of_all if name in lists}


DERIVED = ("ground_truth", "data_source", "extra_info", "info", "task")


def derive(row: dict[str, Any], names: Sequence[str]) -> str | None:
    """Add the columns that a function of another trainer expects; returns the missing part in words, or None.

    verl keeps the gold at `reward_model.ground_truth`, rubrics their data in `info`, which may be JSON text.

    Raises:
        RepeatedKey: that text has a key twice.
    """
    for name in names:
        if name == "info" and "info" in row:
            row["info"] = _from_json(row["info"])
        if name in row:
            continue
        if name == "ground_truth":
            model = _from_json(row.get("reward_model"))
            if isinstance(model, Mapping) and "ground_truth" in model:
                row[name] = model["ground_truth"]
            elif "answer" in row:
                row[name] = row["answer"]
            else:
                return "no column `ground_truth`, `reward_model` with a `ground_truth`, or `answer`"
        else:
            row[name] = {"data_source": "", "extra_info": {}, "info": {}, "task": "default"}[name]
    return None


def _from_json(value: Any) -> Any:
    """The value of JSON text; anything else as it is."""
    try:
        return loads(value) if isinstance(value, str) else value
    except RepeatedKey:
        raise
    except ValueError:
        return value


def _own(call: FunctionCall) -> FunctionCall:
    """The call with its own copy of the row: calls of a batch share rows, and a function may change its arguments."""
    return call._replace(row=copy.deepcopy(call.row))


def _turns(call: FunctionCall, messages: bool) -> tuple[Any, Any]:
    """Completion and prompt, as texts or as lists of messages."""
    if not messages:
        return call.completion, call.prompt
    own = call.row.get("prompt")
    is_chat = isinstance(own, list) and bool(own) and all(isinstance(m, Mapping) and "role" in m for m in own)
    prompt = own if is_chat else [{"role": "user", "content": call.prompt}]
    return [{"role": "assistant", "content": call.completion}], prompt


# The greatest return value, read from the source.

_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def most_of(file: str, line: int) -> float | None:
    """The greatest number that the function at this line returns, or puts into the list that it returns; None where its source
    does not bound every return. True is 1."""
    try:
        nodes = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        (found,) = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.lineno == line]
        # a decorator may change the return value; the function's line is then that of the decorator
        return None if found.decorator_list else max(_ends(found))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _ends(function: ast.AST) -> set[float]:
    """The least and the greatest number that a function returns; ValueError where they are not known."""
    values: dict[str, list[ast.expr]] = defaultdict(list)  # of each name: all that it is set to, or that is appended
    lists, returned = set[str](), list[ast.expr]()
    reads, writes = Counter[str](), Counter[str]()  # of a name, beyond those in `values` and `returned`
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(
                ast.Name(id=name), _, ast.expr() as value
            ):
                values[name].append(value)
                writes[name] -= 1
                lists |= {name} if isinstance(value, ast.List | ast.ListComp) else set()
            case ast.Call(func=ast.Attribute(ast.Name(id=name), "append"), args=[value]):
                values[name].append(value)
                reads[name] -= 1
                lists.add(name)
            case ast.Return(value=ast.expr() as value):
                returned.append(value)
                reads[ast.unparse(value)] -= 1
            case ast.Name(id=name, ctx=ast.Load()):
                reads[name] += 1
            case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(name=name):
                writes[name] += 1
            case ast.Yield() | ast.YieldFrom() | ast.Match() | ast.Global() | ast.Nonlocal():
                raise ValueError("what is returned, or a name's value, is set in another way")
    for name in list(values):
        if writes[name] or (name in lists and reads[name]):  # code that gets the list can change it
            del values[name]

    def ends(*nodes: ast.expr) -> set[float]:
        """Of the numbers that these can be, or hold."""
        found = set[float]()
        for node in nodes:
            match node:
                case ast.Constant(value=bool() | int() | float() as number):
                    found.add(float(number))
                case ast.Constant(value=None):
                    pass
                case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(ast.Name(id="bool"), [_], []):
                    found |= {0.0, 1.0}
                case ast.UnaryOp(op=ast.USub(), operand=inner):
                    found |= {-end for end in ends(inner)}
                case ast.ListComp(elt=inner) | ast.Await(inner) | ast.Call(ast.Name(id="float" | "int"), [inner], []):
                    found |= ends(inner)
                case ast.IfExp(body=one, orelse=other):
                    found |= ends(one, other)
                case ast.List(elts=some) | ast.Tuple(elts=some):
                    found |= ends(*some)
                case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                    found |= {_ARITHMETIC[type(op)](a, b) for a in ends(left) for b in ends(right)}
                case ast.Dict(keys=keys, values=parts):  # one with an `outcome` may call anything right
                    named = {k.value: part for k, part in zip(keys, parts, strict=True) if isinstance(k, ast.Constant)}
                    if len(named) < len(keys) or "outcome" in named or "score" not in named:
                        raise ValueError("a dict that is not understood")
                    found |= ends(named["score"])
                case ast.Name(id=name) if name in values:
                    own = values.pop(name)  # so that a name defined by itself is an error, not endless recursion
                    found |= ends(*own)
                    values[name] = own
                case _:
                    raise ValueError("an expression that is not understood")
        return {min(found), max(found)} if found else found

    return ends(*returned)
