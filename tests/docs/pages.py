"""What the pages hold: files, fenced blocks, commands, links and the anchors of headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^()\s]+)\)")
SAVED = re.compile(r"`([\w./-]+\.(?:py|jsonl|yaml))`(?:[,;][^\n.]*)?:\n\n$")
SAID = re.compile(r"<!-- (not run here|not compared): ([^>]+?) -->\n$")
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.M)


def pages() -> list[Path]:
    """Every page of Markdown that is ours."""
    folders = [ROOT.glob("*.md"), *((ROOT / name).rglob("*.md") for name in ("docs", "examples", ".github"))]
    return sorted(page for found in folders for page in found)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its language, its text, and the heading it stands under.

    `file` is what the reader saves it as, `not_run` why it is not run here, `loose` why its output is not compared.
    """

    language: str
    text: str
    heading: str
    file: str = ""
    not_run: str = ""
    loose: str = ""


def blocks(page: Path, language: str = "") -> Iterator[Block]:
    """The fenced blocks of a page in order, of one language where it is given."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        if not language or found[1] == language:
            before = text[: found.start()]
            headings = HEADING.findall(FENCE.sub("", before))
            saved, said = SAVED.search(before), SAID.search(before)
            why = {said[1]: said[2]} if said else {}
            yield Block(
                found[1],
                found[2],
                headings[-1] if headings else "",
                saved[1] if saved else "",
                why.get("not run here", ""),
                why.get("not compared", ""),
            )


def commands(block: Block) -> list[str]:
    """The command lines of a block of shell, without their comments."""
    lines = [without_comment(line) for line in block.text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def without_comment(line: str) -> str:
    """A command line without the words behind `#`."""
    return re.sub(r"\s+#.*$", "", line).strip()


def links(page: Path) -> Iterator[str]:
    """Targets of the links and pictures of a page, those in code left out."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    yield from LINK.findall(text)


def anchors(page: Path) -> set[str]:
    """What `#…` may name on a page: its headings as GitHub spells them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found
