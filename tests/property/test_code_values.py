"""Properties of what crosses the sandbox's border: values survive, hostile messages never get out of hand."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_verifiers.program.compare import CompareRule, same, same_output
from grpo_verifiers.sandbox.inside import extract, fences
from grpo_verifiers.sandbox.inside.wall import values

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.complex_numbers(allow_nan=False, allow_infinity=False)
)
KEYS = st.integers() | st.text(max_size=4) | st.tuples(st.integers(), st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(st.integers(), max_size=4)
        | st.frozensets(st.text(max_size=3), max_size=3)
    ),
    max_leaves=12,
)


def sent(value: Any) -> Any:
    """As it arrives on the other side."""
    return json.loads(json.dumps(values.encode(value)))


@given(VALUES)
def test_a_value_arrives_as_itself(value: Any) -> None:
    back = values.decode(sent(value))
    assert back == value and type(back) is type(value)


@given(VALUES)
def test_a_value_is_the_same_as_itself_by_either_rule(value: Any) -> None:
    assert same(value, sent(value), CompareRule(exact=True))
    assert same(value, sent(value), CompareRule())


@given(VALUES, VALUES)
def test_the_exact_rule_agrees_with_python(one: Any, other: Any) -> None:
    equal = one == other
    if isinstance(one, bytes | bytearray) != isinstance(other, bytes | bytearray):
        return
    assert same(one, sent(other), CompareRule(exact=True)) == equal


@given(st.fractions(max_denominator=10**6), st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_exact_number_types_arrive(fraction: Fraction, decimal: Decimal) -> None:
    assert values.decode(sent(fraction)) == fraction
    assert values.decode(sent(decimal)) == decimal


@given(st.floats())
def test_nan_is_nan_only_where_json_cannot_tell(value: float) -> None:
    assert same(value, sent(value), CompareRule())
    assert same(value, sent(value), CompareRule(exact=True)) == (not math.isnan(value))


@given(st.text(st.characters(exclude_characters="\r"), max_size=60))
def test_printed_text_equals_itself_with_other_line_ends(text: str) -> None:
    assert same_output(text, text)
    assert same_output(text, text.replace("\n", "\r\n") + "  \n\n")


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=6))
def test_equal_decimals_are_equal_output(numbers: list[int]) -> None:
    assert same_output(" ".join(map(str, numbers)), " ".join(f"{n}.0" for n in numbers))
    changed = [*numbers[:-1], numbers[-1] + 1]
    assert not same_output(" ".join(map(str, numbers)), " ".join(map(str, changed)), tolerance=None)


@settings(deadline=None)
@given(st.text(alphabet="`~ \n\tpython def f():x=1<think></think>", max_size=120))
def test_extraction_takes_any_text(text: str) -> None:
    code = extract.program(text, "f", "def f():\n    '''doc'''\n")
    assert code is None or code.co_filename == "<solution>"
    assert all(isinstance(block, str) for block in fences.python_blocks(text))


LINES = (
    """
def f(): pass|def f():|    'doc'|    pass|    ...|    return 1|    yield 1|async def f(): pass|class f: pass|class Solution:
import f|f = 1|if True:|    def f(): return|[f for f in ()]|lambda f: f|x = 1|pass|'doc'|# nothing|def g(): f = 1
    def f(): return 2|global f|@print|return 3|del f
""".strip()
    .replace("\n", "|")
    .split("|")
)


@given(st.lists(st.sampled_from(LINES), max_size=6), st.sampled_from([None, "f", "Solution.f"]))
def test_what_code_shows_is_what_the_tree_says(lines: list[str], entry: str | None) -> None:
    source = "\n".join(lines)
    tree, code = extract.parse(source), extract.compiled(source)
    if code is None or tree is None:
        return
    assert extract.suits(tree, entry) or not extract.shows(code, entry)
    assert extract.suited(source, entry) == (code if extract.suits(tree, entry) else None)
    finished = extract.defines(tree, "f") and not extract.is_stub(tree, "f")
    assert finished or not extract.does_something(code, "f")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r`~"), min_size=1, max_size=80))
def test_a_fenced_block_comes_back_whole(body: str) -> None:
    found = fences.blocks(f"text\n```python\n{body}\n```\nmore")
    assert [b.text for b in found] == [f"{body}\n"] and found[0].tag == "python"
