"""What must hold for every verifier of short answers and forms, whatever a model writes."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpo_verifiers import Outcome, Verifier, build
from grpo_verifiers.kinds.equation import BadExpression, evaluate
from grpo_verifiers.kinds.instructions import CHECKS, Args, obeys
from grpo_verifiers.shaping import TERMS, Shaped, build_term

ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "exact": ({}, {"answer": "Paris"}),
    "set": ({"partial": "f1"}, {"answer": ["red", "green"]}),
    "choice": ({}, {"answer": "B", "choices": ["Paris", "Rome", "Berlin"]}),
    "numeric": ({"rel_tol": 0.01, "units": "convert"}, {"answer": "5 km"}),
    "json": ({"partial": True, "order": "free", "rel_tol": 0.1}, {"answer": {"a": [1, 2.5, "x"], "b": None}}),
    "format": ({"partial": True, "boxes": "one"}, {}),
    "equation": ({}, {"target": 24, "numbers": [3, 3, 8, 8]}),
    "agrees": ({}, {}),
    "instructions": ({"partial": True}, {"instructions": [{"kind": kind, **more} for kind, more in (
        ("words", {"least": 2}), ("sentences", {"most": 3}), ("bullets", {"exactly": 0}), ("json", {}), ("no_commas", {}),
        ("highlights", {"least": 1}), ("script", {"text": "LATIN"}), ("nth_paragraph", {"n": 1, "text": "a"}),
    )]}),
    "regex": ({"pattern": r"is (?P<answer>\S+)", "match": "answer_group", "compare": "numeric"}, {"answer": "4"}),
}  # fmt: skip
VERIFIERS: dict[str, Verifier] = {kind: build(kind, **options) for kind, (options, _) in ROWS.items()}
GOLDS = {kind: VERIFIERS[kind].compile(row) for kind, (_, row) in ROWS.items()}

PIECES = [
    "\\boxed{", "}", "{", "[", "]", "(", ")", "<think>", "</think>", "<answer>", "</answer>", "```json\n", "```", "####", " or ", ",",
    "Paris", "B", "5 km", "5000 m", "red, green", '{"a": [1, 2.5, "x"], "b": null}', "8/(3-8/3)", "is 4", "\\frac{1}{2}", "10^{9}", "**a**",
    "\x00", "\ud800", "\u202e", "é", "٣", "∞", "1e999", "-", "=", "\\", "\n\n", '"', "$",
]  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=14).map("".join)


@pytest.mark.parametrize("kind", ROWS)
@settings(max_examples=150, deadline=None)
@given(text=hostile)
@example("\\boxed{" * 500)
@example("<think>" * 500 + "</think>" * 499)
@example('{"a":' * 200)
@example("[" * 2000 + "]" * 2000)
@example("(" * 2000)
@example("9" * 5000)
@example("\\boxed{" + "9" * 5000 + "}")
def test_a_verifier_never_raises_and_repeats_itself(kind: str, text: str) -> None:
    verifier, row = VERIFIERS[kind], ROWS[kind][1]
    one, two = verifier.verify(text, row), verifier.verify(text, row)
    assert (one.outcome, one.score, one.answer, one.reason) == (two.outcome, two.score, two.answer, two.reason)
    assert one.outcome is not Outcome.ERROR and one.score is not None and 0.0 <= one.score <= 1.0
    assert (one.score == 1.0) == (one.outcome is Outcome.RIGHT)
    json.dumps(one.as_json())


@pytest.mark.parametrize(
    "kind", [kind for kind in ROWS if kind not in ("agrees", "format", "instructions", "regex", "equation")]
)
def test_the_gold_passes_its_own_verifier(kind: str) -> None:
    verifier, row = VERIFIERS[kind], ROWS[kind][1]
    text = verifier.gold_text(row)
    assert text is not None and verifier.verify(text, row).outcome is Outcome.RIGHT


words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=10).filter(
    lambda w: w.casefold() not in ("and",)
)


@settings(deadline=None)
@given(gold=words, other=words)
def test_exact_knows_its_gold_and_only_that(gold: str, other: str) -> None:
    verifier = build("exact", extract="whole")
    assert verifier.verify(gold, {"answer": gold}).outcome is Outcome.RIGHT
    assert verifier.verify(f' "{gold.upper()}". ', {"answer": gold.upper()}).outcome is Outcome.RIGHT
    if verifier.verify(other, {"answer": gold}).outcome is Outcome.RIGHT:
        assert verifier.verify(gold, {"answer": other}).outcome is Outcome.RIGHT


@settings(deadline=None)
@given(items=st.lists(words, min_size=1, max_size=6), seed=st.integers(0, 99))
def test_a_set_may_come_in_any_order(items: list[str], seed: int) -> None:
    shuffled = random.Random(seed).sample(items, len(items))
    verifier = build("set", extract="whole")
    assert verifier.verify(json.dumps(shuffled), {"answer": items}).outcome is Outcome.RIGHT
    assert verifier.verify(json.dumps([*shuffled, "surely not there"]), {"answer": items}).outcome is Outcome.WRONG


@settings(deadline=None)
@given(seed=st.integers(0, 999))
def test_choice_by_words_survives_re_ordered_options(seed: int) -> None:
    options = ["Paris", "Rome", "Berlin", "none of these"]
    order = random.Random(seed).sample(options, 4)
    row = {"answer": "Rome", "choices": order}
    letter = "ABCD"[order.index("Rome")]
    verifier = build("choice")
    for said in ("Rome", letter, f"({letter.lower()})", f"{letter}. Rome"):
        assert verifier.verify(f"\\boxed{{{said}}}", row).outcome is Outcome.RIGHT
    for other in set("ABCD") - {letter}:
        assert verifier.verify(f"\\boxed{{{other}}}", row).outcome is Outcome.WRONG


@settings(deadline=None)
@given(n=st.integers(-(10**12), 10**12), places=st.integers(0, 4))
def test_a_number_re_spelled_is_the_same_number(n: int, places: int) -> None:
    value = Fraction(n, 10**places)
    plain = f"{abs(n):0{places + 1}d}"
    text = ("-" if n < 0 else "") + (plain[:-places] + "." + plain[-places:] if places else plain)
    verifier = build("numeric", extract="whole")
    whole, dot, rest = text.partition(".")
    spellings = [
        text,
        f"{int(whole):,}{dot}{rest}" if whole != "-0" else text,
        f"{n}e-{places}",
        f"x = {text}",
        f"{text} km",
    ]
    spellings.append(f"{value.numerator}/{value.denominator}")
    for spelling in spellings:
        assert verifier.verify(spelling, {"answer": text}).outcome is Outcome.RIGHT, spelling
    assert verifier.verify(f"{n + 1}e-{places}", {"answer": text}).outcome is Outcome.WRONG


@settings(deadline=None)
@given(gold=st.floats(1e-6, 1e6), share=st.floats(0, 0.2))
def test_a_tolerance_is_symmetric_and_grows(gold: float, share: float) -> None:
    text = repr(gold * (1 + share))
    verdicts = [
        build("numeric", extract="whole", rel_tol=tol).verify(text, {"answer": gold}).score
        for tol in (0.0, 0.05, 0.1, 0.3)
    ]
    assert verdicts == sorted(verdicts) and verdicts[-1] == 1.0


values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(gold=st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=3), other=values)
def test_json_equals_itself_however_it_is_spelled(gold: dict[str, Any], other: Any) -> None:
    verifier = build("json", extract="whole")
    turned = dict(reversed(gold.items()))
    assert verifier.verify(json.dumps(turned, indent=1), {"answer": gold}).outcome is Outcome.RIGHT
    got = verifier.verify(json.dumps(other), {"answer": gold})
    same = json.dumps(other, sort_keys=True) == json.dumps(gold, sort_keys=True)
    assert (got.outcome is Outcome.RIGHT) == same


def expression(rng: random.Random, depth: int = 0) -> str:
    if depth > 3 or rng.random() < 0.3:
        return str(rng.randint(1, 20))
    left, right = expression(rng, depth + 1), expression(rng, depth + 1)
    text = f"{left} {rng.choice('+-*/')} {right}"
    return f"({text})" if rng.random() < 0.6 else text


@settings(deadline=None)
@given(seed=st.integers(0, 10**6))
def test_equation_computes_what_python_computes(seed: int) -> None:
    text = expression(random.Random(seed))
    numbers = [Fraction(token) for token in text.replace("(", " ").replace(")", " ").split() if token.isdigit()]
    exact = " ".join(
        f"Fraction({t})" if t.isdigit() else t for t in text.replace("(", " ( ").replace(")", " ) ").split()
    )
    try:
        wanted = eval(exact, {"Fraction": Fraction})  # our own digits and signs, not a model's
    except ZeroDivisionError:
        with pytest.raises(BadExpression, match="division_by_zero"):
            evaluate(text)
        return
    value, used = evaluate(text)
    assert value == wanted and sorted(used.elements()) == sorted(numbers)


@settings(deadline=None)
@given(thought=words, answer=words, drop=st.sampled_from(["<think>", "</think>", "<answer>", "</answer>"]))
def test_format_breaks_with_any_tag_left_out(thought: str, answer: str, drop: str) -> None:
    text = f"<think>{thought}</think>\n<answer>{answer}</answer>"
    verifier = build("format", opened="no")
    assert verifier.verify(text, {}).outcome is Outcome.RIGHT
    assert verifier.verify(text.replace(drop, "", 1), {}).outcome is Outcome.WRONG
    part = build("format", opened="no", partial=True).verify(text.replace(drop, "", 1), {}).score
    assert part is not None and 0 < part < 1


@pytest.mark.parametrize("kind", TERMS)
@settings(deadline=None)
@given(
    text=hostile,
    tokens=st.none() | st.integers(0, 10_000),
    cap=st.none() | st.integers(1, 5_000),
    is_right=st.booleans(),
)
def test_shaping_stays_in_its_range(kind: str, text: str, tokens: int | None, cap: int | None, is_right: bool) -> None:
    value = build_term(kind)(Shaped(text, tokens, cap, is_right))
    assert (0 <= value <= 1) if kind == "length" else (-1 <= value <= 0)


@settings(deadline=None)
@given(tokens=st.integers(0, 2000), more=st.integers(0, 500))
def test_overlong_only_ever_grows(tokens: int, more: int) -> None:
    term = build_term("overlong")
    assert term(Shaped("", tokens + more, 1000)) <= term(Shaped("", tokens, 1000))


sentences = st.lists(st.lists(words.filter(str.isascii), min_size=1, max_size=5), min_size=1, max_size=4)


@settings(deadline=None)
@given(parts=sentences)
def test_counts_of_a_made_text_are_known(parts: list[list[str]]) -> None:
    text = " ".join(" ".join(part) + "." for part in parts)
    assert obeys(text, "sentences", Args(exactly=len(parts)))
    assert obeys(text, "words", Args(exactly=sum(map(len, parts))))
    assert obeys("\n\n".join([text] * 3), "paragraphs", Args(exactly=3))
    assert obeys("\n".join(f"* {word}" for word in parts[0]), "bullets", Args(exactly=len(parts[0])))
    assert obeys(
        "\n".join(f"{i}. {word}" for i, word in enumerate(parts[0], 1)), "numbered", Args(exactly=len(parts[0]))
    )
    assert obeys("\n".join(f"## {word}" for word in parts[0]), "headings", Args(exactly=len(parts[0])))
    assert obeys(" ".join(f"[{word}]" for word in parts[0]), "placeholders", Args(exactly=len(parts[0])))
    assert obeys(" ".join(f"**{word}**" for word in parts[0]), "highlights", Args(exactly=len(parts[0])))


SATISFY: dict[str, tuple[Args, str, str]] = {
    "lines": (Args(exactly=2), "a\n\nb", "a"),
    "characters": (Args(most=3), "abc", "abcd"),
    "capital_words": (Args(least=1), "an API", "an Api"),
    "letter": (Args(text="z", least=2), "Zz", "z"),
    "keyword": (Args(text="big cat", least=1), "a Big cat.", "big cats"),
    "include": (Args(words=("a", "b")), "b a", "a"),
    "avoid": (Args(words=("x",)), "a", "a x"),
    "starts_with": (Args(text="Hi"), "hi you", "oh hi"),
    "ends_with": (Args(text="bye."), 'so "bye."', "bye. so"),
    "one_of": (Args(words=("yes", "no")), "Yes.", "yes no"),
    "upper_case": (Args(), "A B", "A b"),
    "lower_case": (Args(), "a b", "a B"),
    "no_commas": (Args(), "a b", "a, b"),
    "quoted": (Args(), '"a"', '"a" b'),
    "title": (Args(), "<<a>>", "<a>"),
    "postscript": (Args(text="P.S."), "a\nP.S. b", "a"),
    "sections": (Args(text="PART", exactly=2), "PART 1\na\nPART 2\nb", "PART 1"),
    "json": (Args(), "[1]", "[1"),
    "script": (Args(text="GREEK"), "καλημέρα", "kalimera"),
    "nth_paragraph": (Args(text="b", n=2), "a\n\nb c", "b\n\na"),
    "repeats": (Args(text="Do it"), "Do  it now", "it Do"),
    "two_answers": (Args(), "a******b", "a"),
    "words": (Args(least=2), "a b", "a"),
    "sentences": (Args(most=1), "a b.", "a. b."),
    "paragraphs": (Args(exactly=1), "a\nb", "a\n\nb"),
    "parts": (Args(exactly=2), "a\n\nb\n***\nc", "a\n\nb"),
    "contains_one": (Args(words=("Yes.", "No.")), "I think so. Yes.", "Yes. No."),
    "bullets": (Args(exactly=1), "- a", "a"),
    "numbered": (Args(exactly=1), "1. a", "a"),
    "headings": (Args(exactly=1), "# a", "a"),
    "highlights": (Args(exactly=1), "*a*", "a"),
    "placeholders": (Args(exactly=1), "[a]", "a"),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_every_check_can_be_obeyed_and_broken(kind: str) -> None:
    args, good, bad = SATISFY[kind]
    assert obeys(good, kind, args) and not obeys(bad, kind, args) and not obeys("", kind, args)
