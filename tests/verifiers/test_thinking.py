"""Where a completion stops thinking: one definition for all verifiers and for the metric `think`."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_verifiers import Outcome, Sample, Verifier, build
from grpo_verifiers.thinking import after_thinking, answer_text, has_thought, opening_at_end

SPELLINGS = {
    "think": ("<think>", "</think>"),
    "thinking": ("<thinking>", "</thinking>"),
    "capitals": ("<THINK>", "</THINK>"),
    "attributes": ('<think budget="9">', "</think>"),
    "reasoning": ("<reasoning>", "</reasoning>"),
    "seed": ("<seed:think>", "</seed:think>"),
    "escaped": ("&lt;think&gt;", "&lt;/think&gt;"),
    "brackets": ("[THINK]", "[/THINK]"),
    "triangles": ("◁think▷", "◁/think▷"),
    "tokens": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "thought": ("<|begin_of_thought|>", "<|end_of_thought|>\n<|begin_of_solution|>"),
    "turned channel": ("<|channel>thought\n", "<channel|>"),
    "unused": ("<unused94>thought", "<unused95>"),
    "channel": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
}
FORMS = [pytest.param(*tags, id=name) for name, tags in SPELLINGS.items()]

GOOD = "```python\ndef add(a, b):\n    return a + b\n```"
BAD = "```python\ndef add(a, b):\n    return a - b\n```"
TESTS = {"tests": ["assert add(2, 3) == 5"], "entry_point": "add"}


@pytest.fixture(scope="module")
def code() -> Iterator[Verifier]:
    verifier = build("code", lanes=1)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(("begins", "ends"), FORMS)
def test_every_spelling_separates_thinking_and_answer(begins: str, ends: str) -> None:
    assert after_thinking(f"{begins}a{ends}b") == ("b", False, True)
    assert after_thinking(f"a{ends}b") == ("b", False, True), "the template opened it"
    assert after_thinking(f"{begins}a").is_open
    assert after_thinking(f"{begins}a{ends}b{begins}c").is_open
    assert after_thinking(f"{begins}a{ends}b{begins}c{ends}d").text == "d"
    assert after_thinking(f"{begins}a{begins}b{ends}c{ends}d").text == "d"


def test_a_text_without_thinking_is_its_own_answer() -> None:
    assert after_thinking("a < b [c] <b>think</b>") == ("a < b [c] <b>think</b>", False, False)


@pytest.mark.parametrize(("begins", "ends"), FORMS)
def test_code_inside_any_thinking_is_not_the_answer(code: Verifier, begins: str, ends: str) -> None:
    assert code.verify(f"{begins}{GOOD}{ends}I do not know.", TESTS).outcome is not Outcome.RIGHT
    assert code.verify(f"{begins}{GOOD}", TESTS).outcome is Outcome.NO_ANSWER
    assert code.verify(f"{begins}{BAD}{ends}\n{GOOD}", TESTS).outcome is Outcome.RIGHT
    assert code.verify(f"try\n{GOOD}\n{ends}\n{BAD}", TESTS).outcome is Outcome.WRONG


SHORT: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("math", {}, {"answer": "4"}, "\\boxed{4}"),
    ("numeric", {}, {"answer": "4"}, "\\boxed{4}"),
    ("exact", {}, {"answer": "ok"}, "\\boxed{ok}"),
    ("set", {}, {"answer": ["a", "b"]}, "\\boxed{a, b}"),
    ("choice", {}, {"answer": "B", "choices": ["x", "y"]}, "\\boxed{B}"),
    ("json", {}, {"answer": '{"a": 1}'}, '```json\n{"a": 1}\n```'),
    ("equation", {}, {"numbers": [2, 3], "target": 5}, "\\boxed{2+3}"),
    ("regex", {"pattern": "is (?P<answer>\\d)", "match": "answer_group"}, {"answer": "4"}, "is 4"),
]


@pytest.mark.parametrize(("begins", "ends"), FORMS)
@pytest.mark.parametrize(("kind", "options", "row", "good"), SHORT, ids=[c[0] for c in SHORT])
def test_a_thought_answer_is_not_a_stated_one(
    kind: str, options: dict[str, Any], row: dict[str, Any], good: str, begins: str, ends: str
) -> None:
    verifier = build(kind, **options)
    try:
        assert verifier.verify(f"{begins}hm{ends}\n{good}", row).outcome is Outcome.RIGHT
        assert verifier.verify(f"{begins}{good}{ends}\nno idea", row).outcome is not Outcome.RIGHT
        assert verifier.verify(f"{begins}{good}", row).outcome is Outcome.NO_ANSWER
    finally:
        verifier.close()


@pytest.mark.parametrize(("begins", "ends"), FORMS)
@pytest.mark.parametrize(("kind", "options", "row", "good"), SHORT, ids=[c[0] for c in SHORT])
def test_a_thinking_that_the_prompt_opened_and_the_completion_never_closed_is_no_answer(
    kind: str, options: dict[str, Any], row: dict[str, Any], good: str, begins: str, ends: str
) -> None:
    verifier = build(kind, **options)
    gold = verifier.compile(row)
    assistant_prefix = f"{begins}\n"
    try:
        cut, closed, plain = verifier.judge(
            [
                Sample(f"so {good}\nand", gold, assistant_prefix=assistant_prefix),
                Sample(f"hm{ends}\n{good}", gold, assistant_prefix=assistant_prefix),
                Sample(f"so {good}", gold),
            ]
        )
    finally:
        verifier.close()
    assert (cut.outcome, closed.outcome) == (Outcome.NO_ANSWER, Outcome.RIGHT)
    assert plain.outcome is Outcome.RIGHT or kind == "json"


def test_code_in_a_thinking_that_the_prompt_opened_is_not_the_answer(code: Verifier) -> None:
    gold = code.compile(TESTS)
    found = code.judge(
        [
            Sample(GOOD, gold, assistant_prefix="<think>\n"),
            Sample(f"a</think>{GOOD}", gold, assistant_prefix="<think>\n"),
        ]
    )
    assert [v.outcome for v in found] == [Outcome.NO_ANSWER, Outcome.RIGHT]


def test_a_prefill_is_the_beginning_of_the_answer() -> None:
    (found,) = build("math").judge(
        [Sample("4}.", build("math").compile({"answer": "4"}), assistant_prefix="It is \\boxed{")]
    )
    assert found.outcome is Outcome.RIGHT


@pytest.mark.parametrize(("begins", "ends"), FORMS)
def test_the_end_of_a_prompt_says_whether_it_opens_the_thinking(begins: str, ends: str) -> None:
    assert opening_at_end(f"q<|im_start|>assistant\n{begins}\n") == f"{begins}\n"
    assert opening_at_end(f"Think in {begins} and {ends}: 2+2?") == ""
    assert opening_at_end(f"q{begins}\n\n{ends.split()[0]}\n\n") == ""
    assert opening_at_end("") == opening_at_end("what is <b>") == ""


@pytest.mark.parametrize(
    ("completion", "assistant_prefix", "reason"),
    [
        ("a</think><answer>b</answer>", "<think>\n", "form"),
        ("<think>a</think><answer>b</answer>", "<think>\n", "form"),
        ("a", "<think>\n", "no_end_of_think"),
        ("a", "", "no_think"),
        ("<answer>b</answer>", "<think>\n", "no_end_of_think"),
        ("<answer>b</answer>", "<think>x</think>", "no_think"),
    ],
)
def test_format_knows_what_the_prompt_opened(completion: str, assistant_prefix: str, reason: str) -> None:
    (found,) = build("format").judge([Sample(completion, (), assistant_prefix=assistant_prefix)])
    assert found.reason == reason


@pytest.mark.parametrize(("begins", "ends"), FORMS)
def test_a_proof_and_a_source_are_looked_for_after_the_thinking(begins: str, ends: str) -> None:
    from grpo_verifiers.program.command import source_of
    from grpo_verifiers.proof.metamath import proof_text

    text = f"{begins}\n```\nx\n```\n{ends}\n```\ny\n```"
    assert proof_text(text) == "y\n" and source_of(text, ("sql", "coq")) == "y\n"
    cut = f"{begins}\n```\nx\n```\n"
    assert proof_text(cut) is None and source_of(cut, ()) is None


@pytest.mark.parametrize(("begins", "ends"), FORMS)
def test_tags_that_are_text_of_the_program_do_not_cut_it(begins: str, ends: str) -> None:
    said = ends.replace("\n", " ")
    head = f"```python\ndef f(t):\n    # drop {begins} up to {said}"
    tail = f"    return t.split({ends.split()[0]!r})\n```"
    assert answer_text(f"{head}\n{tail}") == f"{head}\n{tail}"
    documented = f'{head}\n    """\n{ends}\n"""\n{tail}'
    assert answer_text(f"{begins}hm{ends}\n{documented}") == f"\n{documented}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('t.split("</think>")[-1]', None),
        ("re.sub(r'<think>.*?</think>', '', t)", None),
        ("say `<think>` first", None),
        ("don't</think>it isn't", "it isn't"),
        ('5" and</think>5"', '5"'),
        ("f(x)' is</think>f(x)' too", "f(x)' too"),
        ("<think>it ends with `</think>`, so\n</think>x", "x"),
        ("<think>\n```python\ncut off\n</think>\n```python\ny\n```", "\n```python\ny\n```"),
        ("```python\ncut off\n</think>\n```python\ny\n```", "\n```python\ny\n```"),
        ("<think>\n```\n<think>\na\n</think>\n```\nso\n</think>\ny", "\ny"),
        ("<think>\n```python\n# to </think> here\n```\nmore\n</think>y", "y"),
        ("<think>\n```python\ncut off, done.</think>y", "y"),
        ("```text\nplan\n```</think>y", "y"),
        ("<think>x</think>```python\n# </think>\n```", "```python\n# </think>\n```"),
        ("~~~\n<think>\na\n</think>\n~~~", None),
        ('{"a": "<think>", "b": "x \\" </think>"}', None),
    ],
)
def test_what_is_a_tag_and_what_is_text(text: str, answer: str | None) -> None:
    assert after_thinking(text)[:2] == (text if answer is None else answer, False)


def test_a_thinking_in_a_fence_that_nobody_closed_is_one() -> None:
    assert after_thinking("```\nx\n<think>\ny").is_open
    assert after_thinking("```\nx\n<think>\ny\n</think>\nz").text == "\nz"


@pytest.mark.parametrize(("begins", "ends"), FORMS)
def test_a_thought_is_closed_and_says_something(begins: str, ends: str) -> None:
    assert has_thought(f"{begins}1+1{ends}2") and has_thought(f"1+1{ends}2")
    assert not has_thought(f"{begins}{ends}2") and not has_thought(f"{begins}\n{ends}2")
    assert not has_thought(f"{ends}2") and not has_thought(f"{begins}1+1") and not has_thought("2")


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "</think>'", "'</think> ", '\\"', '" ', "```\n", "```\n</think>", "```</think>",
     "<think>```", "> ", "`", "'a ", "<think> \n", "~~~\n<think>"],
)  # fmt: skip
def test_time_is_linear_in_the_text(piece: str) -> None:
    def seconds(n: int) -> float:
        text = "<think>" + piece * (n // len(piece))
        took = []
        gc.disable()  # a collection among the objects of all tests would count as the text's
        try:
            for _ in range(3):
                began = time.process_time()
                after_thinking(text)
                took.append(time.process_time() - began)
        finally:
            gc.enable()
        return min(took)

    assert seconds(400_000) < 20 * max(seconds(50_000), 0.002)
