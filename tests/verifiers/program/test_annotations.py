"""What a solution or a test writes for its readers, annotations and defaults, decides no verdict; a test that asks gets it."""

from __future__ import annotations

import pytest

from grpo_verifiers.program import CodeVerifier

MODULES = """
abc argparse ast asyncio collections collections.abc concurrent.futures contextlib email.message enum functools http io
ipaddress itertools json logging math os queue re socket sqlite3 statistics subprocess sys threading types typing
urllib.parse xml.etree.ElementTree zipfile zoneinfo numpy numpy.typing pandas
"""
HEAD = """
import enum, functools, types
from dataclasses import dataclass, field
from typing import *
T = TypeVar("T")
P = ParamSpec("P")
UserId = NewType("UserId", int)
@dataclass
class Point:
    x: int
    at: list["Point"] = field(default_factory=list)
class Node(Generic[T]):
    value: T
    next: Optional["Node"] = None
class Color(enum.Enum):
    RED: int = 1
class Options(TypedDict):
    name: str
class Named(NamedTuple):
    left: types.SimpleNamespace = None
class Area(Protocol):
    def area(self) -> float: ...
class Raises:
    def __getattr__(self, name): raise RuntimeError(name)
    def __repr__(self): raise ValueError
Ring = []
Ring.append(Ring)
"""
NOTES = """
argparse.Namespace | logging.Logger | subprocess.CompletedProcess[str] | xml.etree.ElementTree.Element | socket.socket | sqlite3.Connection
queue.Queue[int] | asyncio.Queue[int] | concurrent.futures.Future[int] | ast.Module | zipfile.ZipFile | http.HTTPStatus
urllib.parse.ParseResult | email.message.Message | statistics.NormalDist | os.PathLike[str] | io.StringIO | threading.Lock
ipaddress.IPv4Address | zoneinfo.ZoneInfo | contextlib.AbstractContextManager[int] | json.JSONDecodeError | types.FrameType
collections.deque[int] | collections.Counter[str] | collections.abc.Callable[[int], int] | collections.abc.Mapping[str, int]
re.Pattern[str] | Optional[re.Match[str]] | Callable[[], None] | Callable[[int, str], Optional[int]] | Callable[..., Any]
Callable[P, T] | Callable[Concatenate[int, P], int] | Annotated[int, {"min": 1}] | Annotated[int, lambda x: x > 0] | Literal["a", 1]
Tuple[()] | Tuple[int, ...] | Final[int] | ClassVar[int] | Self | Never | TypeGuard[int] | Unpack[Options] | T | List[T] | P
UserId | Optional["Node"] | List["Undefined"] | "Undefined" | "no Python at all" | Point | list[Point] | Node[int] | Color | Options
Named | Area | type("", (), {}) | Raises() | object() | Ring | {"a": socket.socket} | [socket.socket]
lambda x: x | print | math | sys.stdout | itertools.count() | functools.partial(int, base=2) | 10**5000 | float("nan") | ... | None
numpy.ndarray | numpy.float64 | numpy.dtype | numpy.random.Generator | Optional[numpy.ndarray] | Dict[str, Tuple[numpy.ndarray, int]]
dict[numpy.ndarray, Node] | numpy.typing.NDArray[numpy.float64] | numpy.typing.ArrayLike | pandas.Series | pandas.DataFrame | Callable[[pandas.DataFrame], pandas.Series]
numpy.array([1]) | numpy.nan | "pandas.DataFrame"
"""
SOLUTION = """
def wrapped(f: {note}) -> {note}:
    @functools.wraps(f)
    def g(*a: {note}, **k: {note}) -> {note}: return f(*a, **k)
    return g
class Stepper:
    step: {note}
    def up(self, v: {note}) -> {note}: return v + 1
@dataclass
class Record:
    v: int
    note: {note} = None
@wrapped
def act(v: {note}, w: {note} = None) -> {note}:
    kept: {note} = v
    return kept + 1
def given(v, w={note}): return v + 1
def maker(f):
    def inner(v: {note}) -> {note}: return f(v) + 1
    return inner
"""
TESTS = """
def back(v: {note}, w: {note} = None) -> {note}: return v
def check(candidate):
    for v in (1, 2):
        assert act(v) == given(v) == Stepper().up(v) == maker(back)(v) == maker(lambda v: v)(v) == v + 1
        assert Record(v).v == v
"""


def program(text: str, note: str) -> str:
    modules = [m for m in MODULES.split() if note == m or f"{m}." in note]
    return "".join(f"import {m}\n" for m in modules) + HEAD + text.format(note=note)


@pytest.mark.parametrize("note", [n.strip() for n in NOTES.replace("\n", "|").split("|") if n.strip()])
def test_an_annotation_or_default_decides_nothing(verifier: CodeVerifier, note: str) -> None:
    row = {"entry_point": "act", "tests": program(TESTS, note)}
    verdict = verifier.verify(program(SOLUTION, note), row)
    # what imports these is not carried, whatever for
    is_carried = not any(m in note for m in ("asyncio.", "concurrent.", "socket.", "subprocess.", "threading."))
    assert verdict.score == (1.0 if is_carried else None), verdict


def test_a_wrong_function_is_refused_however_it_is_annotated(verifier: CodeVerifier) -> None:
    for note in ("numpy.ndarray", "argparse.Namespace", "Callable[[], None]", "Point", "Raises()"):
        wrong = program(SOLUTION, note).replace("return kept + 1", "return kept")
        row = {"entry_point": "act", "tests": program(TESTS, note)}
        assert verifier.verify(wrong, row).score == 0.0


ASKED = [
    ("numpy.ndarray", "import numpy", "act.__annotations__ == {'v': numpy.ndarray}"),
    ("pandas.Series", "import pandas", "inspect.signature(act).parameters['v'].annotation is pandas.Series"),
    ("argparse.Namespace", "import argparse", "list(inspect.signature(act).parameters) == ['v']"),
    ("Callable[[int], bool]", "from typing import Callable", "act.__annotations__['v'] == Callable[[int], bool]"),
    ("dict[str, 'Undefined']", "import typing", "act.__annotations__['v'].__args__ == (str, 'Undefined')"),
    ("Own", "class Own: pass", "act.__annotations__['v'] is not int and act.__code__.co_argcount == 1"),
    ("Own.inner", "class Own: inner = int", "typing.get_type_hints(act) == {'v': int}"),
]


@pytest.mark.parametrize(("note", "head", "asks"), ASKED, ids=[a[0] for a in ASKED])
def test_a_test_that_asks_for_an_annotation_has_no_verdict(
    verifier: CodeVerifier, note: str, head: str, asks: str
) -> None:
    row = {
        "entry_point": "act",
        "tests": f"import inspect, typing\n{head}\nfor v in (1, 2):\n    assert act(v) == v and {asks}",
    }
    for code in (f"{head}\ndef act(v: {note}): return v", "def act(v: float, w=1): return v"):
        verdict = verifier.verify(code, row)
        assert (verdict.score, verdict.reason) == (None, "not_supported"), verdict
        assert verdict.detail in ("signature", "annotations")


def test_default_factories_run_only_where_objects_are_made(verifier: CodeVerifier) -> None:
    solution = """
from dataclasses import dataclass, field
import itertools
@dataclass
class Item:
    number: int = field(default_factory=itertools.count().__next__)
def act(like: Item): return Item().number
"""
    tests = "for v in (0, 1, 2):\n    assert act(v) == v"
    assert verifier.verify(solution, {"entry_point": "act", "tests": tests}).score == 1.0


def test_a_class_of_a_library_can_be_called(verifier: CodeVerifier) -> None:
    solution = "import numpy, argparse\ndef act(v): return [numpy.float64, argparse.Namespace][v]"
    tests = """
import numpy
for v in (0, 1):
    assert act(v).__name__ == ['float64', 'Namespace'][v]
assert act(0)(3) == 3
"""
    assert verifier.verify(solution, {"entry_point": "act", "tests": tests}).score == 1.0


def test_no_class_is_named_by_way_of_a_module_that_a_library_imports(verifier: CodeVerifier) -> None:
    solution = """
import numpy, numpy.testing, unittest.mock
found = type(unittest.mock.ANY)
found.__module__, found.__qualname__ = "numpy", "testing._private.utils.unittest.mock._ANY"
def act(v): return found
"""
    tests = "import numpy\nfor v in (1, 2):\n    assert act(v)() == v"
    assert verifier.verify(solution, {"entry_point": "act", "tests": tests}).score == 0.0
