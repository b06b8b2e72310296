"""A row of tests, checked and made ready once: what is sent to a run (inputs) apart from what stays here (expected)."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from grpo_verifiers.program.compare import COMPARES
from grpo_verifiers.program.literal_tests import LiteralCall, literal_calls
from grpo_verifiers.program.reach import TestText, called_name, is_check
from grpo_verifiers.sandbox.inside import extract
from grpo_verifiers.sandbox.inside.wall import plan
from grpo_verifiers.sandbox.inside.wall import values as wire
from grpo_verifiers.sandbox.view import PACKAGES, host_view
from grpo_verifiers.strict_json import RepeatedKey, loads
from grpo_verifiers.verifier import BadGold

Style = Literal["assert", "stdio", "function_call"]
Scoring = Literal["all", "fraction"]
KINDS = ("plain", "numpy", "pandas")
STYLES = ("assert", "stdio", "function_call")
SHORT_NAMES = re.compile(r"\b(np|pd)\.")
MOST_TIMEOUT_S = 600.0
MOST_RESULTS = 1 << 20
EQUAL = ("equal", "close", "isclose", "almost", "evalplus", "is")


@dataclass(frozen=True, slots=True)
class Output:
    """One stdio test: the input, the accepted outputs, a tolerance for decimals."""

    input: str
    outputs: tuple[str, ...]
    tolerance: float | None = None
    compare: str = ""  # how to compare it, where the row's layout says so; else the option of the verifier decides


@dataclass(frozen=True, slots=True)
class Returned:
    """One call with its accepted values, of the style `function_call`; none where a reference gives them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    accepted: tuple[Any, ...]
    tolerance: float | None = None
    is_exact: bool = False  # a tuple is no list, as where Python values are compared and not JSON


@dataclass(frozen=True, slots=True)
class CodeTask:
    """A compiled row. Of `outputs`, `returned`, `programs` exactly one is filled; `calls` are the programs, read as calls."""

    style: Style
    entry: str | None
    prompt: str
    before: str  # the row's setup, then what the prompt gives besides the function to write
    shared: tuple[str, ...]  # classes that the setup or the prompt defines
    scoring: Scoring
    timeout_s: float
    memory_mb: int
    packages: str  # "plain", "numpy" or "pandas": what the tests themselves need
    imports: frozenset[str]  # modules outside the standard library that the row's own code imports
    needs_scratch: bool
    is_trusted: bool  # the row lets the solution's own code decide: `trusted_objects`
    count: int
    expected_bytes: int = 0  # about how much an honest run has to say
    inputs: str = "[]"  # the calls as a run gets them, as JSON: no expected value is in it
    outputs: tuple[Output, ...] = ()
    returned: tuple[Returned, ...] = ()
    calls: tuple[LiteralCall, ...] = ()
    programs: tuple[str, ...] = ()
    reference: str = ""  # the program whose values are the expected ones
    format: str = "code"  # the data set whose columns the row has

    @property
    def way(self) -> str:
        """`values`: the host compares what the solution returns or prints; `wall`: a test program runs beside it; `trusted`:
        in one process with it."""
        if self.calls or not self.programs:
            return "values"
        return "trusted" if self.is_trusted else "wall"

    def not_carried(self) -> str:
        """What its test programs ask for that the wall does not carry, by their text alone; "" where there is nothing."""
        try:
            asked = {*plan.free_names([self.before, *self.programs]), self.entry or ""}
            return plan.not_carried([*map(ast.parse, self.programs)], "\n".join(self.programs), asked)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ""  # `nonlocal` at the top, say: their verdict is `tests_broken`


def _inputs(calls: Sequence[LiteralCall | Returned]) -> str:
    encoded = [
        [[wire.encode(a) for a in call.args], {k: wire.encode(v) for k, v in call.kwargs.items()}] for call in calls
    ]
    return json.dumps(encoded, separators=(",", ":"))


def _size(expected: list[Any]) -> int:
    return len(json.dumps(wire.encode(expected)))


def packages_in(text: str) -> set[str]:
    """Those of `PACKAGES` that a source imports, by its lines; in time linear in the text."""
    names = [name for name in PACKAGES if name in text]
    lines = [line for line in text.split("\n") if "import" in line] if names else []
    return {name for line in lines for name in names if name in line}


def packages_of(text: str) -> str:
    """Which lane kind a source needs, by its import lines and the short names that it uses."""
    found = packages_in(text) | set(SHORT_NAMES.findall(text))
    return "pandas" if found & {"pandas", "pd"} else "numpy" if found else "plain"


def missing_libraries(task: CodeTask) -> list[str]:
    """Modules that the row's own code imports and that its lane has not."""
    shown = {module for module, _ in host_view(PACKAGES).packages} if task.packages != "plain" else set[str]()
    return sorted(task.imports - shown)


def _imports(source: str) -> set[str]:
    """Modules outside the standard library that a source imports, but for those that it tries to import."""
    waiting, found = list[ast.AST](ast.parse(source).body if "import" in source else ()), set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        elif not isinstance(node, ast.Try):
            waiting += [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)]
    return found - sys.stdlib_module_names - {"pytest", "solution"}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a row does not say."""

    style: str
    scoring: str
    timeout_s: float
    memory_mb: int
    max_tests: int | None


def compile_task(row: Mapping[str, Any], defaults: Defaults) -> CodeTask:
    """The task of one row.

    Raises:
        BadGold: fields that cannot be used.
    """
    tests = _tests(row.get("tests"))
    style = str(row.get("style") or defaults.style)
    if style == "auto":
        is_calls = isinstance(tests, list) and isinstance(tests[0], Mapping)
        is_printed = is_calls and "input" in tests[0] and "args" not in tests[0]
        style = "stdio" if is_printed else "function_call" if is_calls else "assert"
    if style not in STYLES:
        raise BadGold(f"`style` is {style!r}; known: {', '.join(STYLES)}")
    scoring = str(row.get("scoring") or defaults.scoring)
    if scoring not in ("all", "fraction"):
        raise BadGold(f"`scoring` is {scoring!r}; known: all, fraction")
    least_s = min(_number(row, "least_timeout", defaults.timeout_s, 1e9), MOST_TIMEOUT_S)
    timeout_s = _number(row, "timeout", max(defaults.timeout_s, least_s), MOST_TIMEOUT_S)
    memory_mb = int(_number(row, "mem_mb", defaults.memory_mb, 1 << 20))
    prompt, setup = _text(row, "prompt_code"), _text(row, "setup")
    entry = _entry(row.get("entry_point"))
    if isinstance(tests, list) and defaults.max_tests is not None:
        tests = tests[: defaults.max_tests]
    if setup and extract.parse(setup) is None:
        raise BadGold("`setup` is no Python")
    packages = _need(packages_of(f"{setup}\n{prompt}"), row.get("needs"))
    given = extract.preamble(prompt, entry) if prompt else ast.Module([], [])
    before = f"{setup}\n{ast.unparse(given)}".strip()
    common: dict[str, Any] = {
        "style": style,
        "entry": entry,
        "prompt": prompt,
        "before": before,
        "shared": tuple(node.name for node in ast.parse(before).body if isinstance(node, ast.ClassDef)),
        "scoring": scoring,
        "timeout_s": timeout_s,
        "memory_mb": memory_mb,
        "packages": packages,
        "imports": frozenset(_imports(before)),
        "needs_scratch": row.get("needs") == "scratch",
        "is_trusted": row.get("trusted_objects") is True,
    }
    if style == "stdio":
        how = row.get("compare") or ""
        if how not in ("", *COMPARES):
            raise BadGold(f"`compare` is {how!r}; known: {', '.join(COMPARES)}")
        outputs = tuple(_output(t, i, how) for i, t in enumerate(_list_of_dicts(tests, style)))
        return CodeTask(count=len(outputs), outputs=outputs, **common)
    if style == "function_call":
        if entry is None:
            raise BadGold("`function_call` tests need an `entry_point`")
        reference = _text(row, "reference")
        returned = tuple(_returned(t, i, bool(reference)) for i, t in enumerate(_list_of_dicts(tests, style)))
        return CodeTask(
            count=len(returned),
            inputs=_inputs(returned),
            expected_bytes=_size([r.accepted for r in returned]),
            returned=returned,
            reference=reference,
            **common,
        )
    return _assert_task(_programs(tests, entry), common)


def _entry(given: object) -> str | None:
    """The entry point as a dotted name: `Solution().f` and `Solution.f` are the same method of a fresh object."""
    if not given:
        return None
    entry = given.replace("().", ".") if isinstance(given, str) else ""
    if not all(part.isidentifier() for part in entry.split(".")):
        raise BadGold(f"`entry_point` is no name: {given!r}")
    return entry


def _assert_task(programs: list[str], common: dict[str, Any]) -> CodeTask:
    """Test programs; those that are plain calls become inputs and values, so the tests need no process of their own."""
    common["packages"] = _need(common["packages"], packages_of("\n".join(programs)))
    common["imports"] = common["imports"].union(*map(_imports, programs))
    entry = common["entry"]
    if entry is None:
        common["entry"] = entry = called_name(programs)
    calls = literal_calls(programs, entry) if entry else None
    if not calls:
        records = [node for node in ast.parse("\n".join(programs)).body if _is_record(node) and node.name != entry]
        common["before"] = "\n".join([common["before"], *map(ast.unparse, records)]).strip()
        common["shared"] += tuple(node.name for node in records)
        return CodeTask(count=len(programs), programs=tuple(programs), **common)
    claims = [claim for call in calls for claim in call.claims]
    is_told = all(claim.op in EQUAL and not claim.views for claim in claims)
    return CodeTask(
        count=len(programs),
        inputs=_inputs(calls),
        # how long a result is of which only a part is claimed, nobody knows
        expected_bytes=_size([claim.expected for claim in claims]) if is_told else MOST_RESULTS,
        calls=calls,
        programs=tuple(programs),
        **common,
    )


def _is_record(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """Whether a statement of a test program defines a class that does nothing but hold what it is made of, as nodes of lists do.

    Such a class is the solution's as well, and its objects cross by their fields.
    """
    if not isinstance(node, ast.ClassDef) or node.bases or node.keywords or node.decorator_list or len(node.body) != 1:
        return False
    made = node.body[0]
    return (
        isinstance(made, ast.FunctionDef)
        and made.name == "__init__"
        and all(isinstance(default, ast.Constant) for default in (*made.args.defaults, *made.args.kw_defaults))
        and all(isinstance(one, ast.Assign) and isinstance(one.value, ast.Name | ast.Constant) for one in made.body)
    )


def _programs(tests: object, entry: str | None) -> list[str]:
    programs = [tests] if isinstance(tests, str) else tests
    if not isinstance(programs, list) or not programs or not all(isinstance(t, str) and t.strip() for t in programs):
        raise BadGold("`tests` of style assert is a program or a list of statements")
    found, before, unused = list[str](), "", None
    for number, program in enumerate(programs):
        try:
            tree = ast.parse(before + program)
            is_checking = TestText(tree, entry).has_check()
        except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
            raise BadGold(f"test {number} is no Python: {err}") from err
        if is_checking:
            found.append(before + program)
            unused = None
        else:  # imports, values and helpers of the statements that follow
            before += program + "\n"
            unused = (number, tree) if unused is None else unused
    if unused is not None:
        number, tree = unused
        if any(map(is_check, ast.walk(tree))):
            raise BadGold(
                f"test {number} is never run, or cannot fail: no assert that can is reached when it is started"
            )
        raise BadGold(f"test {number} asserts nothing")
    return found


def _need(first: str, second: object) -> str:
    return max(first, second if second in KINDS else "plain", key=KINDS.index)


def _tests(tests: object) -> Any:
    """The tests; a JSON text of a list is read, as data sets store it so."""
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        try:
            tests = loads(tests)
        except RepeatedKey as err:
            raise BadGold(f"`tests`: {err}") from None
        except ValueError:
            return tests
    if hasattr(tests, "tolist"):
        tests = tests.tolist()
    if isinstance(tests, tuple):
        tests = list(tests)
    if not tests:
        raise BadGold("`tests` is empty")
    return tests


def _list_of_dicts(tests: object, style: str) -> list[Mapping[str, Any]]:
    if not isinstance(tests, list) or not all(isinstance(t, Mapping) for t in tests):
        raise BadGold(f"`tests` of style {style} is a list of objects")
    return tests


def _output(test: Mapping[str, Any], number: int, how: str) -> Output:
    given, wanted = test.get("input", ""), test.get("output")
    if isinstance(given, list):
        given = "\n".join(map(str, given)) + "\n"
    outputs = test["output_any"] if "output_any" in test else wanted if isinstance(wanted, list) else [wanted]
    if len(outputs) > 1 and "output_any" not in test and isinstance(test.get("input"), list):
        raise BadGold(
            f"test {number} has lists as `input` and `output`: a list as `output` would be outputs of which any is"
            " accepted; give its lines as one text, or what is accepted as `output_any`"
        )
    good = isinstance(outputs, list) and bool(outputs) and all(isinstance(o, str) for o in outputs)
    if not isinstance(given, str) or not good:
        raise BadGold(f"test {number} needs `input` and `output` as text")
    return Output(given, tuple(map(str, outputs)), _tolerance(test, number), how)


def _returned(test: Mapping[str, Any], number: int, has_reference: bool) -> Returned:
    args, kwargs = test.get("args", []), test.get("kwargs") or {}
    if has_reference:
        accepted = [None]  # until the reference was run
    elif "expected_any" in test:
        accepted = test["expected_any"]
    elif "expected" in test:
        accepted = [test["expected"]]
    else:
        raise BadGold(f"test {number} has no `expected`")
    if (
        not isinstance(args, list | tuple)
        or not isinstance(kwargs, Mapping)
        or not isinstance(accepted, list)
        or not accepted
    ):
        raise BadGold(f"test {number} needs `args` as a list and `expected`")
    try:
        wire.encode([*args, dict(kwargs)])
    except (wire.NotPlain, RecursionError) as err:
        raise BadGold(f"test {number} has arguments that are no plain values: {err}") from err
    return Returned(tuple(args), dict(kwargs), tuple(accepted), _tolerance(test, number), has_reference)


def _tolerance(test: Mapping[str, Any], number: int) -> float | None:
    value = test.get("float_tol")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise BadGold(f"test {number} has a `float_tol` that is no tolerance: {value!r}")
    return float(value)


def _number(row: Mapping[str, Any], name: str, default: float, most: float) -> float:
    value = row.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise BadGold(f"`{name}` is {value!r}, not a number above 0 and up to {most:g}")
    return float(value)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name) or ""
    if not isinstance(value, str):
        raise BadGold(f"`{name}` is no text")
    return value
