"""`instructions`: does a completion obey what the row asks of its form (counts, keywords, case, structure)?

The row lists them: `instructions: [{kind: words, least: 100}, {kind: no_commas}]`. Rows in IFEval's own shape
(`instruction_id_list` and `kwargs`) are read too, as far as `checks.py` has a check for them. Thinking is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from grpo_verifiers.answers import AnswerVerifier, Example
from grpo_verifiers.kinds.instruction_checks import Args, BadInstruction, obeys, read_instruction
from grpo_verifiers.thinking import after_thinking
from grpo_verifiers.verdict import Verdict, no_answer, right, wrong
from grpo_verifiers.verifier import BadGold, Sample

Instructions = tuple[tuple[str, Args], ...]


@dataclass(frozen=True)
class InstructionOptions:
    """Options of `instructions`."""

    partial: bool = False
    """Give the share of instructions obeyed as the score; `false` gives all or nothing."""
    lenient: bool = False
    """Also try the text without its first line, its last line, and without asterisks, as IFEval's loose score does."""


class InstructionsVerifier(AnswerVerifier):
    """Right where all instructions of the row are obeyed; the reason names the first that is not."""

    Options: ClassVar[type] = InstructionOptions
    options: InstructionOptions
    columns: tuple[str, ...] = ()  # several spellings are read; `compile` names what is missing

    def compile(self, row: Mapping[str, Any]) -> Instructions:
        """The row's instructions, checked (also in the columns of IFEval).

        Raises:
            BadGold: there are none, or one is unknown or lacks what it needs.
        """
        said = row.get("instructions")
        if said is None and "instruction_id_list" in row:
            said = from_ifeval(
                row["instruction_id_list"], row.get("kwargs") or [], str(row.get("prompt", ""))
            )
        if not isinstance(said, list) or not said:
            raise BadGold("no column `instructions` with a list of instructions")
        try:
            return tuple(read_instruction(one) for one in said)
        except BadInstruction as err:
            raise BadGold(str(err)) from None

    def judge_one(self, sample: Sample) -> Verdict:
        """Check each instruction on the text after the thinking."""
        text, is_open, _ = after_thinking(sample.turn)
        if is_open:
            return no_answer("in_thinking")
        if not text.strip():
            return no_answer("empty")
        texts = _loosened(text) if self.options.lenient else [text]
        failed = [kind for kind, args in sample.gold if not any(obeys(one, kind, args) for one in texts)]
        if not failed:
            return right(None, "obeyed")
        score = 1 - len(failed) / len(sample.gold) if self.options.partial else 0.0
        return wrong(None, failed[0], score=score)

    @classmethod
    def examples(cls) -> list[Example]:
        """For `grpo explain instructions`."""
        row = {"instructions": [{"kind": "words", "most": 5}, {"kind": "no_commas"}]}
        return [
            Example("Short and to the point.", row, "both are obeyed"),
            Example("Short, and to the point.", row, "a comma"),
            Example("one two three four five six", row, "half of them", {"partial": True}),
        ]


def _loosened(text: str) -> list[str]:
    lines = text.strip().split("\n")
    shorter = [lines, lines[1:], lines[:-1], lines[1:-1]]
    texts = ["\n".join(part) for part in shorter]
    return [*texts, *(one.replace("*", "") for one in texts)]


_RELATION = {"at least": "least", "less than": "most"}


def from_ifeval(
    names: Sequence[str], arguments: Sequence[Mapping[str, Any] | None], prompt: str
) -> list[dict[str, Any]]:
    """Instructions from IFEval's columns.

    Raises:
        BadGold: one of them has no check here; the message names it.
    """
    out = []
    for i, name in enumerate(names):
        given = {
            k: v for k, v in ((arguments[i] if i < len(arguments) else None) or {}).items() if v is not None
        }
        made = _translated(str(name), given, prompt)
        if made is None:
            raise BadGold(f"IFEval's `{name}` is not among the checks")
        out.append(made)
    return out


def _counted(
    kind: str, given: Mapping[str, Any], key: str, relation: str = "relation", **more: object
) -> dict[str, Any]:
    bound = _RELATION.get(str(given.get(relation, "at least")), "least")
    count = int(given.get(key) or 0)
    return {"kind": kind, bound: max(0, count - 1) if bound == "most" else count, **more}


def _translated(name: str, given: Mapping[str, Any], prompt: str) -> dict[str, Any] | None:
    plain: dict[str, dict[str, Any]] = {
        "punctuation:no_comma": {"kind": "no_commas"},
        "detectable_format:json_format": {"kind": "json"},
        "detectable_format:title": {"kind": "title"},
        "startend:quotation": {"kind": "quoted"},
        "change_case:english_capital": {"kind": "upper_case"},
        "change_case:english_lowercase": {"kind": "lower_case"},
        "combination:two_responses": {"kind": "two_answers"},
        "detectable_format:constrained_response": {
            "kind": "contains_one",
            "words": ["My answer is yes.", "My answer is no.", "My answer is maybe."],
        },
    }
    if name in plain:
        return plain[name]
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "length_constraints:number_words": lambda: _counted("words", given, "num_words"),
        "length_constraints:number_sentences": lambda: _counted("sentences", given, "num_sentences"),
        "length_constraints:number_paragraphs": lambda: {"kind": "parts", "exactly": int(given["num_paragraphs"])},
        "length_constraints:nth_paragraph_first_word": lambda: {
            "kind": "nth_paragraph", "n": int(given["nth_paragraph"]), "text": str(given["first_word"]),
            "exactly": int(given["num_paragraphs"]),
        },
        "detectable_format:number_bullet_lists": lambda: {"kind": "bullets", "exactly": int(given["num_bullets"])},
        "detectable_format:number_highlighted_sections": lambda: {"kind": "highlights", "least": int(given["num_highlights"])},
        "detectable_format:multiple_sections": lambda: {
            "kind": "sections", "text": str(given["section_spliter"]).strip(), "least": int(given["num_sections"]),
        },
        "detectable_content:number_placeholders": lambda: {"kind": "placeholders", "least": int(given["num_placeholders"])},
        "detectable_content:postscript": lambda: {"kind": "postscript", "text": str(given.get("postscript_marker") or "P.S.")},
        "keywords:existence": lambda: {"kind": "include", "words": list(given["keywords"])},
        "keywords:forbidden_words": lambda: {"kind": "avoid", "words": list(given["forbidden_words"])},
        "keywords:frequency": lambda: _counted("keyword", given, "frequency", text=str(given["keyword"]).strip()),
        "keywords:letter_frequency": lambda: _counted("letter", given, "let_frequency", "let_relation", text=str(given["letter"])),
        "change_case:capital_word_frequency": lambda: _counted(
            "capital_words", given, "capital_frequency", "capital_relation"
        ),
        "startend:end_checker": lambda: {"kind": "ends_with", "text": str(given["end_phrase"]).strip()},
        "combination:repeat_prompt": lambda: {"kind": "repeats", "text": str(given.get("prompt_to_repeat") or prompt)},
    }  # fmt: skip
    maker = makers.get(name)
    try:
        return maker() if maker is not None else None
    except (KeyError, TypeError, ValueError):
        raise BadGold(f"the arguments of IFEval's `{name}` cannot be read: {dict(given)}") from None
