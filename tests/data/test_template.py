from __future__ import annotations

import pytest

from grpo_cli.data.template import FillError, MissingColumn, TemplateError, column_or_template, parse


def fill(template: str, **fields: object) -> str:
    return parse(template).fill(fields)


def test_doubled_braces_are_braces() -> None:
    assert fill("{q}\nPut it in \\boxed{{}}.", q="1+1?") == "1+1?\nPut it in \\boxed{}."
    assert fill("{{{q}}}", q="x") == "{x}"


def test_columns_are_found_inside_objects_and_lists() -> None:
    assert fill("{a.b} {choices.1}", a={"b": 3}, choices=["x", "y"]) == "3 y"


def test_a_column_with_a_dot_in_its_name_goes_before_nesting() -> None:
    assert fill("{a.b}", **{"a.b": "whole", "a": {"b": "nested"}}) == "whole"


def test_column_names_may_hold_spaces() -> None:
    assert fill("{my column}", **{"my column": "x"}) == "x"


def test_filters_run_from_left_to_right() -> None:
    assert fill("{answer | after('####') | number}", answer="3 and 4\n#### $1,234.") == "1234"


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("{v | strip}", " a ", "a"),
        ("{v | lower}", "AB", "ab"),
        ("{v | upper}", "ab", "AB"),
        ("{v | first_line}", "\n a \nb", "a"),
        ("{v | last_line}", "a\n b \n\n", "b"),
        ("{v | after('=')}", "a=b=c", "b=c"),
        ("{v | after_last('=')}", "a=b=c", "c"),
        ("{v | before('=')}", "a =b", "a"),
        ("{v | number}", "between 3 and -4.50 apples", "-4.50"),
        ("{v | number}", "1e-3", "1e-3"),
        ("{v | boxed}", r"so \boxed{1} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("{v | letter}", 2, "C"),
        ("{v | choices}", ["x", "y"], "A. x\nB. y"),
        ("{v | join(', ')}", ["x", 1], "x, 1"),
        ("{v | json}", {"a": None}, '{"a": null}'),
        ("{v | replace('a', \"b\")}", "aa", "bb"),
        ("{v | default('none')}", None, "none"),
        ("{v | after('#') | default('none') | upper}", "x", "NONE"),
        ("{v}", True, "true"),
        ("{v}", 1.5, "1.5"),
    ],
)
def test_each_filter_does_its_one_thing(template: str, value: object, expected: str) -> None:
    assert fill(template, v=value) == expected


def test_default_stands_in_for_a_missing_column() -> None:
    assert fill("{nowhere | default('-')}", q="x") == "-"


def test_a_quoted_argument_may_hold_bars_and_braces() -> None:
    assert fill(r"{v | after('}|\n')}", v="a}|\nb") == "b"


@pytest.mark.parametrize(
    ("template", "at", "words"),
    [
        ("ab {q", 3, "never closed"),
        ("ab } c", 3, "without `{`"),
        ("{}", 0, "without a column"),
        ("{q | stripp}", 5, "did you mean `strip`"),
        ("{q | after}", 5, "takes 1 arguments, got 0"),
        ("{q | after('x', 'y')}", 5, "got 2"),
        ("{q | after(x)}", 11, "in quotes"),
        ("{q | after('x}", 11, "quote that is never closed"),
        ("{q {r}}", 3, "inside a placeholder"),
        ("{q | strip) }", 10, "expected `|` or `}`"),
    ],
)
def test_a_template_error_names_the_character(template: str, at: int, words: str) -> None:
    with pytest.raises(TemplateError, match=words.replace("{", r"\{").replace("|", r"\|")) as caught:
        parse(template)
    assert caught.value.at == at


def test_a_missing_column_names_the_near_one() -> None:
    with pytest.raises(MissingColumn, match="did you mean `question`"):
        fill("{Questoin}", question="x")


def test_a_filter_that_finds_nothing_refuses_the_row() -> None:
    with pytest.raises(FillError, match="`answer` has no '####' in '18'"):
        fill("{answer | after('####')}", answer="18")


def test_json_that_says_a_key_twice_refuses_the_row() -> None:
    with pytest.raises(FillError, match="key `a` is said twice"):
        fill("{answer | json('a')}", answer='{"a": 1, "a": 2}')


def test_null_is_refused() -> None:
    with pytest.raises(FillError, match="`q` is null"):
        fill("{q}", q=None)


def test_a_bare_placeholder_keeps_the_value() -> None:
    assert parse("{tests}").value({"tests": [1, 2]}) == [1, 2]
    assert column_or_template("tests").value({"tests": [1, 2]}) == [1, 2]
    assert parse("{tests} ").value({"tests": [1, 2]}) == "[1, 2] "


def test_the_columns_of_a_template_are_listed_once() -> None:
    assert parse("{a} {b | lower} {a}").columns == ("a", "b")
