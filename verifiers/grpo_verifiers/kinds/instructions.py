"""`instructions`: checks whether a completion obeys the row's instructions on form (counts, keywords, case, structure).

How this works: the row lists instructions, `instructions: [{kind: words, least: 100}, {kind: no_commas}]`; each row of `CHECKS` is a
function of the text and its arguments, with its counting rule. Rows of IFEval and IFBench bring `instruction_id_list` and `kwargs`
instead, which `ifeval` and `ifbench` judge as those sets do. If a row has a kind that cannot be judged here, the row is
wrong if another instruction is disobeyed, and has no verdict if all others are obeyed. Thinking is not counted, an
empty text obeys nothing, and the time is linear in the text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from grpo_verifiers.answers import AnswerVerifier, Example
from grpo_verifiers.kinds.ifbench import IFBENCH
from grpo_verifiers.kinds.ifeval import IFEVAL, Given
from grpo_verifiers.names import did_you_mean
from grpo_verifiers.thinking import after_thinking
from grpo_verifiers.verdict import Verdict, error, no_answer, right, wrong
from grpo_verifiers.verifier import BadGold, Sample

_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<![.!?…。！？])[.!?…。！？]++(?:[\"'”’)\]]{1,9})?(?:\s|$)")
_BULLET = re.compile(r"^[ \t]*[*+•-][ \t]+\S", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]+\S", re.MULTILINE)
_HIGHLIGHT = re.compile(r"\*\*[^\s*][^*\n]*\*\*|(?<!\*)\*[^\s*][^*\n]*\*(?!\*)")
_TITLE = re.compile(r"<<([^<>\n]+)>>")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]+\]")
_BETWEEN_BLOCKS = re.compile(r"\n[ \t]*\n|^[ \t]*\*{3,}[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]+\S", re.MULTILINE)

_MARKUP = r"(?:[^\w\n]|_){0,10}"

Check = Callable[[str, "Args"], bool]
PUBLISHED = IFEVAL | IFBENCH


@dataclass(frozen=True, slots=True)
class Args:
    """Arguments of one instruction."""

    least: int | None = None
    most: int | None = None
    exactly: int | None = None
    text: str = ""
    words: tuple[str, ...] = ()
    n: int | None = None

    def allows(self, count: int) -> bool:
        """Whether a count is within the bounds."""
        if self.exactly is not None and count != self.exactly:
            return False
        return (self.least is None or count >= self.least) and (self.most is None or count <= self.most)


def words_of(text: str) -> list[str]:
    """Words: letters and digits, with inner apostrophes and hyphens."""
    return _WORD.findall(text)


def sentences_of(text: str) -> int:
    """Ends of sentences: a run of . ! ? before white space or the end; an unfinished last one counts."""
    ends = list(_SENTENCE_END.finditer(text))
    rest = text[ends[-1].end() :] if ends else text
    return len(ends) + bool(words_of(rest))


def _divided(text: str, divider: str) -> list[str]:
    """The parts between dividers; as in IFEval, an empty part before the first or after the last divider does not
    count."""
    parts = [part.strip() for part in text.split(divider)]
    return parts[not parts[0] : len(parts) - (not parts[-1])]


def count_of(text: str, phrase: str) -> int:
    """How often a phrase occurs in the text as whole words, ignoring case."""
    return len(re.findall(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)) if phrase else 0


def _cased(text: str, is_other: Callable[[str], bool]) -> bool:
    letters = [char for char in text if char.isalpha()]
    return bool(letters) and not any(map(is_other, letters))


def _is_json(text: str) -> bool:
    inner = re.fullmatch(r"```(?:json)?[^\S\n]*+\n(.*?)\n?```", text.strip(), re.S | re.I)
    try:
        json.loads(inner[1] if inner else text)
    except (ValueError, RecursionError):
        return False
    return True


def _in_script(text: str, args: Args) -> bool:
    letters = [char for char in text if char.isalpha()]
    inside = sum(unicodedata.name(char, "?").split()[0] == args.text.upper() for char in letters)
    return bool(letters) and inside >= 0.9 * len(letters)


def _nth_paragraph(text: str, args: Args) -> bool:
    """As in IFEval: blocks between two line breaks, whose number is part of the instruction."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    at = (args.n or 1) - 1
    if not 0 <= at < len(blocks) or not args.allows(len(blocks)):
        return False
    first = words_of(blocks[at])
    return bool(first) and first[0].casefold() == args.text.casefold()


def _postscript(text: str, args: Args) -> bool:
    """The mark at the start of a line or after the end of a sentence, bold or not; spaces after its dots are
    allowed."""
    mark = re.escape(args.text or "P.S.").replace(r"\.", r"\.[ \t]?").removesuffix(r"[ \t]?")
    return bool(re.search(rf"(?:^|[^\w\s,;:]){_MARKUP}{mark}", text, re.M | re.I))


CHECKS: dict[str, Check] = {
    "words": lambda text, args: args.allows(len(words_of(text))),
    "sentences": lambda text, args: args.allows(sentences_of(text)),
    "paragraphs": lambda text, args: args.allows(sum(bool(block.strip()) for block in _BETWEEN_BLOCKS.split(text))),
    "parts": lambda text, args: all(parts := _divided(text, "***")) and args.allows(len(parts)),
    "lines": lambda text, args: args.allows(sum(bool(line.strip()) for line in text.splitlines())),
    "characters": lambda text, args: args.allows(len(text.strip())),
    "bullets": lambda text, args: args.allows(len(_BULLET.findall(text))),
    "numbered": lambda text, args: args.allows(len(_NUMBERED.findall(text))),
    "headings": lambda text, args: args.allows(len(_HEADING.findall(text))),
    "highlights": lambda text, args: args.allows(len(_HIGHLIGHT.findall(text))),
    "placeholders": lambda text, args: args.allows(len(_PLACEHOLDER.findall(text))),
    "capital_words": lambda text, args: args.allows(
        sum(word.isupper() and any(map(str.isalpha, word)) for word in words_of(text))
    ),
    "letter": lambda text, args: args.allows(text.casefold().count(args.text.casefold())),
    "keyword": lambda text, args: args.allows(count_of(text, args.text)),
    "include": lambda text, args: all(count_of(text, word) for word in args.words),
    "avoid": lambda text, args: not any(count_of(text, word) for word in args.words),
    "starts_with": lambda text, args: text.strip().casefold().startswith(args.text.casefold()),
    "ends_with": lambda text, args: text.strip().strip('"”').casefold().endswith(args.text.casefold()),
    "one_of": lambda text, args: (
        text.strip().strip(".").casefold() in {word.strip(".").casefold() for word in args.words}
    ),
    "contains_one": lambda text, args: sum(phrase in text for phrase in args.words) == 1,
    "upper_case": lambda text, args: _cased(text, str.islower),
    "lower_case": lambda text, args: _cased(text, str.isupper),
    "no_commas": lambda text, args: not any(char in text for char in ",，、،"),
    "quoted": lambda text, args: len(text.strip()) > 1 and text.strip()[0] in '"“' and text.strip()[-1] in '"”',
    "title": lambda text, args: any(map(str.strip, _TITLE.findall(text))),
    "postscript": _postscript,
    "sections": lambda text, args: args.allows(
        len(re.findall(rf"^{_MARKUP}{re.escape(args.text)}[ \t]*\d+", text, re.M | re.I))
    ),
    "json": lambda text, args: _is_json(text),
    "script": _in_script,
    "nth_paragraph": _nth_paragraph,
    "repeats": lambda text, args: (
        bool(args.text) and " ".join(text.casefold().split()).startswith(" ".join(args.text.casefold().split()))
    ),
    "two_answers": lambda text, args: len(set(parts := _divided(text, "******"))) == len(parts) == 2 and all(parts),
}
"""Every check by name."""

_NEEDS: dict[str, str] = {
    "letter": "text", "keyword": "text", "starts_with": "text", "ends_with": "text", "script": "text", "nth_paragraph": "text",
    "sections": "text", "repeats": "text", "include": "words", "avoid": "words", "one_of": "words", "contains_one": "words",
}  # fmt: skip
_COUNTED = frozenset((
    "words", "sentences", "paragraphs", "parts", "lines", "characters", "bullets", "numbered", "headings", "highlights",
    "placeholders", "capital_words", "letter", "keyword", "sections",
))  # fmt: skip


def obeys(text: str, kind: str, args: Args | Given) -> bool | None:
    """Whether a text obeys one instruction, None where nothing here can decide; an empty text never does.

    A kind has a colon where it is one of a published set, and then the row's own arguments.
    """
    if not text.strip():
        return False
    if isinstance(args, Args):
        return CHECKS[kind](text, args)
    check = PUBLISHED.get(kind)
    return None if check is None else check(text, args)


def read_instruction(written: object) -> tuple[str, Args]:
    """Kind and arguments of one instruction, `{"kind": "words", "least": 100}`.

    Raises:
        BadGold: it is no instruction, or an argument is missing or wrong.
    """
    if not isinstance(written, Mapping) or not isinstance(written.get("kind"), str):
        raise BadGold(f"an instruction is an object with `kind`, got {str(written)[:80]}")
    kind = written["kind"]
    if kind not in CHECKS:
        raise BadGold(f"unknown instruction `{kind}`{did_you_mean(kind, CHECKS)}")
    given = {key: value for key, value in written.items() if key != "kind" and value is not None}
    unknown = [key for key in given if key not in Args.__slots__]
    if unknown:
        raise BadGold(f"instruction `{kind}` has no argument `{unknown[0]}`")
    for key, value in given.items():
        if key in ("least", "most", "exactly", "n") and (type(value) is not int or value < 0):
            raise BadGold(f"`{key}` of instruction `{kind}` must be a whole number from 0")
        if key == "text" and not isinstance(value, str):
            raise BadGold(f"`text` of instruction `{kind}` must be text")
        if key == "words" and not (isinstance(value, list) and value and all(isinstance(w, str) and w for w in value)):
            raise BadGold(f"`words` of instruction `{kind}` must be a list of texts")
    if (needed := _NEEDS.get(kind)) and not given.get(needed):
        raise BadGold(f"instruction `{kind}` needs `{needed}`")
    if kind in _COUNTED and not given.keys() & {"least", "most", "exactly"}:
        raise BadGold(f"instruction `{kind}` needs `least`, `most` or `exactly`")
    if "words" in given:
        given["words"] = tuple(given["words"])
    return kind, Args(**given)


def read_published(name: str, given: Given, prompt: str) -> tuple[str, Given]:
    """Name and arguments of an instruction of a published set, those that are None left out.

    Raises:
        BadGold: the arguments cannot be read.
    """
    whole = {
        key: int(value) if isinstance(value, float) and value == int(value) else value for key, value in given.items()
    }
    given = {"prompt": prompt} | {key: value for key, value in whole.items() if value is not None}
    try:
        obeys("A text.", name, given)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise BadGold(f"the arguments of `{name}` cannot be read: {str(given)[:200]}") from None
    return name, given


Instructions = tuple[tuple[str, Args | Given], ...]


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
        listed = row.get("instructions")
        if listed is None and "instruction_id_list" in row:
            arguments = [*(row.get("kwargs") or []), *[None] * len(row["instruction_id_list"])]
            named = list(zip(map(str, row["instruction_id_list"]), arguments, strict=False))
            if not any(name in PUBLISHED for name, _ in named):
                raise BadGold(
                    f"none of {', '.join(name for name, _ in named)[:200] or 'no instructions'} is judged here"
                )
            return tuple(read_published(name, given or {}, str(row.get("prompt", ""))) for name, given in named)
        if not isinstance(listed, list) or not listed:
            raise BadGold("no column `instructions` with a list of instructions")
        return tuple(map(read_instruction, listed))

    def judge_one(self, sample: Sample) -> Verdict:
        """Check each instruction on the text after the thinking."""
        text, is_open, _ = after_thinking(sample.turn)
        if is_open:
            return no_answer("in_thinking")
        if not text.strip():
            return no_answer("empty")
        texts = [text]
        if self.options.lenient:
            lines = text.strip().split("\n")
            texts = ["\n".join(part) for part in (lines, lines[1:], lines[:-1], lines[1:-1])]
            texts += [one.replace("*", "") for one in texts]
        failed: list[str] = []
        open_kinds: list[str] = []
        for kind, args in sample.gold:
            found = [obeys(one, kind, args) for one in texts]
            if not any(found):
                (open_kinds if None in found else failed).append(kind)
        if not failed and open_kinds:
            return error("not_judged", f"nothing here judges {', '.join(open_kinds)}; all else is obeyed")
        if not failed:
            return right(None, "obeyed")
        score = 1 - len(failed) / (len(sample.gold) - len(open_kinds)) if self.options.partial else 0.0
        return wrong(None, failed[0].rpartition(":")[2], score=score)

    @classmethod
    def examples(cls) -> list[Example]:
        row = {"instructions": [{"kind": "words", "most": 5}, {"kind": "no_commas"}]}
        return [
            Example("Short and to the point.", row, "both are obeyed"),
            Example("Short, and to the point.", row, "a comma"),
            Example("one two three four five six", row, "half of them", {"partial": True}),
        ]
