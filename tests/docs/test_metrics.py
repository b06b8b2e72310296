"""The page of metrics: every name that the program gives a number is on it, and every name on it is given."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.pages import ROOT

ROOMS = ("train", "statistics", "curriculum", "rollout", "findings", "measure", "jobs/train", "distributed", "run")
NAME = re.compile(r"[a-z_]+(/[a-zA-Z_@0-9{}]+)+")
NO_METRICS = (
    r"clip_ratio/.*|rewards/.*|logps/.*",  # TRL's
    r"(eval|group|time|verify/{})/{}|credit/milestone_|eval/(pass|maj)@",  # any of several, and the beginning of one
    r"grpo/rank/{}|application/json",
    r"tokens/s",
)
WILD = re.compile(r"NAME|REASON|K(?=$|/)|{}")


@cache
def on_page() -> list[str]:
    """The names in the first column of the tables, in their order."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@cache
def in_source() -> set[str]:
    """Texts of the program that may be names of metrics; what a name has of a variable is `{}`."""
    found: set[str] = set()
    files = [file for room in ROOMS for file in (ROOT / "grpo_cli" / room).rglob("*.py")]
    for file in (*files, ROOT / "verifiers" / "grpo_verifiers" / "verdict.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def alike(one: str, other: str) -> bool:
    """Whether two names can mean one metric: words in capitals, and what a variable gives, are anything."""
    return any(
        re.fullmatch(".+".join(map(re.escape, WILD.split(a))), WILD.sub("1", b))
        for a, b in ((one, other), (other, one))
    )


def is_metric(text: str) -> bool:
    """Whether a text of the program is the name of a number, as far as its looks say."""
    return bool(NAME.fullmatch(text)) and not any(re.fullmatch(pattern, text) for pattern in NO_METRICS)


def is_given(name: str) -> bool:
    """Whether the program gives it, or what `eval/`, `drawn/`, `/low` and the like stand beside."""
    short = re.sub(r"^(eval|drawn)/|/(low|high|half|last)$", "", name)
    if "/" not in short:
        return not in_source().isdisjoint({name, short}) or any(
            alike(short, text) for text in in_source() if "@" in text
        )
    if any(alike(one, text) for one in {name, short} for text in in_source() if is_metric(text)):
        return True
    family, _, last = short.replace("/NAME/", "/{}/").rpartition("/")
    return f"{family}/{{}}" in in_source() and last in in_source()  # `time/{phase}`


def test_every_metric_of_the_program_is_on_the_page() -> None:
    metrics = {text for text in in_source() if is_metric(text)}
    missing = sorted(
        m for m in metrics if not any(alike(said, one) for said in (m, f"eval/{m}", f"drawn/{m}") for one in on_page())
    )
    assert missing == [], "say in docs/metrics.md what they are"
    assert len(metrics) > 80


def test_every_name_on_the_page_is_given_by_the_program() -> None:
    lost = [name for name in on_page() if not is_given(name)]
    assert lost == [], "gone or renamed: docs/promises.md says what that takes"


def test_a_name_is_said_once_and_one_that_nobody_gives_is_found() -> None:
    assert len(on_page()) == len(set(on_page()))
    assert not is_given("group/half_right") and not is_given("verify/NAME/colour") and is_given("eval/pass@K/low")
