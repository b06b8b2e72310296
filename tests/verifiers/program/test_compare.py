"""When printed text counts as the expected one, by each rule of `compare`."""

from __future__ import annotations

import pytest

from grpo_verifiers.program.compare import COMPARES, CompareRule, same, same_output

# what is expected, what is printed, and whether `lenient`, `lines`, `tokens` and `strict` take it
TEXTS = [
    ("1 2\n3", "1 2\n3", (True, True, True, True)),
    ("1 2\n3", "1 2  \n3\t\n\n", (True, True, True, False)),
    ("1 2\n3", "1 2\r\n3\r\n", (True, True, True, False)),
    ("1 2\n3", "1 2\n3\n\n", (True, True, True, True)),
    ("1 2\n3", " 1 2\n3", (False, True, True, False)),
    ("1 2\n3", "1  2\n3", (False, False, True, False)),
    ("1 2\n3", "1\t2\n3", (False, False, True, False)),
    ("1 2\n3", "1 2 3", (False, False, True, False)),
    ("1 2\n3", "1 2\n\n3", (False, False, True, False)),
    ("1 2\n3", "1 2\v3", (False, False, True, False)),
    ("1 2\n3", "1 2\x853", (False, False, True, False)),
    ("1 2\n3", "12\n3", (False, False, False, False)),
    ("5", "+5", (True, True, True, False)),
    ("0", "-0", (True, True, True, False)),
    ("1000", "1e3", (True, True, True, False)),
    ("0.5", ".5", (True, True, True, False)),
    ("7", "007", (False, False, False, False)),
    ("007", "7", (False, False, False, False)),
    ("1.5", "01.5", (False, False, False, False)),
    ("5", "\u0665", (False, False, False, False)),
    ("nan", "NaN", (False, False, False, False)),
    ("Yes", "yes", (False, False, False, False)),
]


@pytest.mark.parametrize(("expected", "printed", "taken"), TEXTS)
def test_each_rule_takes_what_it_says(expected: str, printed: str, taken: tuple[bool, ...]) -> None:
    assert tuple(same_output(expected, printed, how) for how in COMPARES) == taken


@pytest.mark.parametrize(
    ("expected", "printed", "is_near"),
    [
        ("0.3333333", "0.3333334", True),
        ("0.333", "0.334", False),
        ("2500000.0", "2500001.5", True),
        ("2500000", "2500001", False),
        ("2500000", "2500001.0", False),
        ("2500000", "2500000.00001", True),
        ("1000000", "999999.9999999", True),
        ("100000000000000000001", "100000000000000000002", False),
        ("1000000000000000003", "1e18", False),
        ("1000000000000000003", "1000000000000000003.0", True),
        ("-7000001", "-7000002", False),
        ("9" * 400, "9" * 399 + "8", False),
        ("1e999", "1e998", False),
        ("inf", "inf", True),
        ("1", "inf", False),
        ("1000000", "1000000.4", False),
        ("1000000", "999999.7", False),
        ("1000000", "1000000.001", False),
        ("10000000000", "10000000000.4", False),
        ("-7", "-7.0000001", False),
        ("0", "0.0000001", False),
        ("1000000", "1e6", True),
        ("1000000", "1000000.0", True),
        ("1000000.0", "1000000.4", True),
        ("1e6", "1000000.4", True),
        ("1", "0.9999999999999999", True),
        ("0", "1e-17", True),
        ("1000000000000", "1000000000000.0002", True),
    ],
)
@pytest.mark.parametrize("how", ["lenient", "tokens"])
def test_a_tolerance_is_for_decimals(expected: str, printed: str, is_near: bool, how: str) -> None:
    assert same_output(expected, printed, how, 1e-6) == is_near
    assert same_output(f"a {expected} 0.25", f"a {printed} 0.2500001", how, 1e-6) == is_near


@pytest.mark.parametrize(
    ("expected", "returned", "is_same"),
    [
        (3_000_000, 3_000_001, False),
        (3_000_000, {"q": [3_000_001, 1]}, False),
        (3_000_000, 3_000_001.0, False),
        (3_000_000, 2_999_999.9999, True),
        (3_000_000.0, 3_000_001, True),
        (10**18 + 3, 1e18, False),
        ([1, 2_000_000], [1, 2_000_001], False),
        ({"n": 5_000_000}, {"d": [["n", 5_000_001]]}, False),
        (3_000_000, {"q": [9_000_001, 3]}, False),
        (3_000_000, {"m": ["3000000.4"]}, False),
        (3_000_000, {"ns": ["<f8", 3_000_000.4]}, False),
        (3, 3.0000000000000004, True),
        (True, 1.0000001, False),
        ([[1_000_000, 0.5]], [[1_000_000.4, 0.5]], False),
        ([[1_000_000, 0.5]], [{"t": [1_000_000, 0.5000001]}], True),
        (0.1, 0.1000001, True),
    ],
)
def test_a_tolerance_is_not_for_whole_numbers(expected: object, returned: object, is_same: bool) -> None:
    assert same(expected, returned, CompareRule(tolerance=1e-6)) == is_same
