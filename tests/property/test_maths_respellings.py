r"""Golds of the labelled cases, spelt anew in ways that keep their meaning, get the verdicts of their plain spelling.

    PYTHONPATH=.:verifiers python -m tests.property.test_maths_respellings [SEED]

prints how many re-spellings there are, how many verdicts differ, and each that does. A spelling is applied only where it can be
told from the text that it means the same: a zero behind a decimal says more digits, so golds never get one, only answers.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from grpo_verifiers import BadGold, Outcome, Sample, build

CASES = Path(__file__).resolve().parents[1] / "cases"
SETS = ("own", "dev", "dev2", "fresh", "fresh2", "fresh3", "fresh4")
EACH = 3
"""Re-spellings of a case."""
MOST_AT_ONCE = 3
"""Spellings put on top of one another."""
HOSTILE = ("dos", "long_response")
"""Kinds of cases whose verdict is a limit of time or length, which a longer spelling may reach sooner."""

Spelling = Callable[[str, Random], str]
_PROSE = re.compile(r"[A-Za-z]{3}")
_MACRO = re.compile(r"\\[A-Za-z]+")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf|mathbf|operatorname|begin|end)\b")
_UNITS = "cm|mm|km|kg|min|hours|minutes|seconds|feet|inches|miles|meters|degrees|dollars|cents|units|mph|years|days"


def _is_formula(text: str) -> bool:
    """No words and no text macros: marks between symbols are mathematics."""
    return not _TEXT.search(text) and not _PROSE.search(_MACRO.sub(" ", text))


def _where_formula(change: Callable[[str], str]) -> Spelling:
    return lambda text, _: change(text) if _is_formula(text) else text


def _sub(pattern: str, to: str) -> Spelling:
    """The pattern replaced everywhere; a command's name ends where its letters do."""
    found = re.compile(pattern)
    return lambda text, _: found.sub(lambda m: m.expand(to), text)


def _spaced(text: str) -> str:
    # an exponent of ten and a sign at the start or behind another mark bind to what follows
    return re.sub(r"(?<=[\w})\]])\s*([+=])\s*(?=[\w\\({\[])", r" \1 ", text) if "e+" not in text.lower() else text


def _sized(text: str) -> str:
    # the brackets of a label are never sized
    if (
        re.match(r"\([A-Za-z]+\)\s*\S", text)
        or "\\left" in text
        or "\\right" in text
        or re.search(r"\\[bB]ig|\\\[|\\\(|\\\\\[", text)
    ):
        return text
    depth = 0
    for mark in text:
        depth += (mark in "([") - (mark in ")]")
        if depth < 0:
            return text
    return text if depth else re.sub(r"[)\]]", r"\\right\g<0>", re.sub(r"[(\[]", r"\\left\g<0>", text))


def _in_marks(left: str, right: str) -> Spelling:
    return lambda text, _: text if "$" in text or "\\(" in text or "\\[" in text else f"{left}{text}{right}"


def _unit_in_text(text: str, random: Random) -> str:
    # one letter behind a number is a unit only in upright type: `2m` is a product
    found = re.fullmatch(rf"(-?\d[\d.]*)\s*(?:\\(?:text|mathrm)\s*\{{\s*({_UNITS}|[mgs])\s*\}}|({_UNITS}))", text)
    if found is None:
        return text
    form = random.choice(("{}\\text{{ {}}}", "{}\\,\\text{{{}}}", "{}~\\mathrm{{{}}}", "{}\\ \\text{{{}}}"))
    return form.format(found[1], found[2] or found[3])


def _braced(text: str) -> str:
    return re.sub(r"([\^_])([A-Za-z0-9])(?![A-Za-z0-9])", r"\1{\2}", text)


def _with_zeros(text: str, random: Random) -> str:
    if re.fullmatch(r"-?\d+\.\d+", text):
        return text + "0" * random.randint(1, 3)
    return f"{text}.{'0' * random.randint(1, 2)}" if re.fullmatch(r"-?[1-9]\d{0,5}", text) else text


SPELLINGS: dict[str, Spelling] = {
    "spaces at marks": _where_formula(_spaced),
    "\\left \\right": _where_formula(_sized),
    "\\dfrac": _sub(r"\\frac(?![A-Za-z])", r"\\dfrac"),
    "\\tfrac": _sub(r"\\d?frac(?![A-Za-z])", r"\\tfrac"),
    "\\frac": _sub(r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
    "units": _unit_in_text,
    "\\mathrm for \\text": _sub(r"(?<=\d)\\text(?=\s*\{)", r"\\mathrm"),
    "minus sign": _where_formula(lambda text: text.replace("-", "−")),
    "\\leq": _sub(r"\\le(?![A-Za-z])", r"\\leq"),
    "\\le": _sub(r"\\leq(?![A-Za-z])", r"\\le"),
    "\\geq": _sub(r"\\ge(?![A-Za-z])", r"\\geq"),
    "≤ ≥": lambda text, _: re.sub(r"\\geq?(?![A-Za-z])", "≥", re.sub(r"\\leq?(?![A-Za-z])", "≤", text)),
    "π": _sub(r"\\pi(?![A-Za-z])", "π"),
    "∞": _sub(r"\\infty(?![A-Za-z])", "∞"),
    "∪": _sub(r"\\cup(?![A-Za-z])", "∪"),
    "°": _sub(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))", "°"),
    "\\circ in braces": _sub(r"\^\s*\\circ(?![A-Za-z])", r"^{\\circ}"),
    "\\times for \\cdot": _sub(r"(?<=\d)\s*\\cdot(?![A-Za-z])\s*(?=\d)", r" \\times "),
    "braces of scripts": _where_formula(_braced),
    "zeros": _with_zeros,
    "\\mathbf": _where_formula(lambda text: text if text.isalpha() else f"\\mathbf{{{text}}}"),
    "braces": _where_formula(lambda text: f"{{{text}}}"),
    "\\displaystyle": _where_formula(lambda text: f"\\displaystyle {text}"),
    "thin space behind": lambda text, _: f"{text}\\,",
    "$": _in_marks("$", "$"),
    "$$": _in_marks("$$", "$$"),
    "\\( \\)": _in_marks("\\(", "\\)"),
    "\\[ \\]": _in_marks("\\[", "\\]"),
    "stop": _where_formula(lambda text: text if text.endswith((".", "!")) else f"{text}."),
    "spaces around": lambda text, random: " " * random.randint(1, 3) + text + " " * random.randint(1, 3),
    "a box in the box": lambda text, _: f"\\boxed{{{text}}}",
}
"""From the inside to the outside: dollars stand around a style, a stop behind dollars."""
_ANSWER_ONLY = ("zeros", "\\mathbf", "a box in the box")


class Respelling(NamedTuple):
    """One pair to judge: `plain` is what it is compared with, of the same meaning; `how` names the spellings."""

    case: str
    how: str
    plain: tuple[str, str]
    respelt: tuple[str, str]


def respelt(text: str, spellings: dict[str, Spelling], random: Random) -> tuple[str, str]:
    """The text in another spelling, and which; up to `MOST_AT_ONCE` of those that change it."""
    able = [name for name, spell in spellings.items() if spell(text, random) != text]
    chosen = random.sample(able, min(len(able), random.randint(1, MOST_AT_ONCE)))
    chosen.sort(key=list(spellings).index)
    for name in chosen:
        text = spellings[name](text, random)
    return text, " + ".join(chosen)


def respellings(seed: int) -> Iterator[Respelling]:
    """Every labelled case `EACH` times: its gold spelt anew beside its response, and beside its gold as the answer."""
    random = Random(seed)
    golds = {name: spell for name, spell in SPELLINGS.items() if name not in _ANSWER_ONLY}
    for name in SETS:
        for number, line in enumerate((CASES / f"math_{name}.jsonl").read_text().splitlines(), 1):
            row = json.loads(line)
            gold, response = row["gold"], row["response"]
            if (
                row.get("kind") in HOSTILE
                or not isinstance(gold, str)
                or not isinstance(response, str)
                or not gold.strip()
                or "boxed" in gold
            ):
                continue
            case = f"math_{name}:{number}"
            for _ in range(EACH):
                spelt, how = respelt(gold, golds, random)
                yield Respelling(case, f"gold: {how}", (gold, response), (spelt, response))
                spelt, how = respelt(gold, SPELLINGS, random)
                own = (gold, f"So \\boxed{{{gold}}}")
                yield Respelling(case, f"answer: {how}", own, (gold, f"So \\boxed{{{spelt}}}"))


def differing(seed: int) -> tuple[list[str], int, int]:
    """What differs, of how many re-spellings, and how many were left out since the machine was too slow for either verdict."""
    verifier = build("math")
    known: dict[tuple[str, str], str] = {}

    def said(pair: tuple[str, str]) -> str:
        if pair not in known:
            try:
                gold = verifier.compile({"answer": pair[0]})
            except BadGold:
                known[pair] = "bad gold"
            else:
                (verdict,) = verifier.judge([Sample(pair[1], gold)])
                late = verdict.outcome is Outcome.ERROR and verdict.reason == "no_proof_in_time"
                known[pair] = "late" if late else verdict.outcome.value
        return known[pair]

    out, judged, late = [], 0, 0
    for one in {r.respelt: r for r in respellings(seed) if r.respelt != r.plain}.values():
        before, after = said(one.plain), said(one.respelt)
        if "late" in (before, after):
            late += 1
            continue
        judged += 1
        if before != after:
            out.append(f"{one.case} {before} -> {after} ({one.how}): {one.respelt[0]!r} for {one.respelt[1][-160:]!r}, was {one.plain!r:.200}")  # fmt: skip
    verifier.close()
    return out, judged, late


def test_no_respelling_of_a_labelled_gold_changes_its_verdict() -> None:
    out, judged, late = differing(seed=20)
    assert judged > 14_000 and late < 50, (judged, late)
    assert not out, f"{len(out)} of {judged:,}\n" + "\n".join(out[:20])


if __name__ == "__main__":
    found, n, left = differing(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    print(*found, f"{n:,} re-spellings judged, {len(found)} differ; {left} left out (too slow)", sep="\n")
