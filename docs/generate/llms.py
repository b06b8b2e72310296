"""`docs/llms.txt`: the pages of the site in the order of its navigation, one line each, for programs that read text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from docs.generate.hooks import SOURCES

ROOT = Path(__file__).resolve().parents[2]
PROSE = re.compile(r"(?![#|!>\s-]|\d+\.)\S")
"""How a paragraph begins: no heading, table, picture, quote, list or indented block."""


def navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """Sections of mkdocs.yml with the titles and places of their pages; pages of no section come under the empty name."""
    yaml = YAML(typ="safe", pure=True)
    yaml.constructor.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    out: list[tuple[str, list[tuple[str, str]]]] = []
    for entry in yaml.load((ROOT / "mkdocs.yml").read_text())["nav"]:
        ((title, inside),) = entry.items()
        out.append(("" if isinstance(inside, str) else title, list(_pages(title, inside))))
    return out


def source(place: str) -> Path:
    """The file in the tree of a page of the site."""
    return ROOT / SOURCES.get(place, f"docs/{place}")


def llms_page() -> str:
    """`llms.txt`: title, what it is, then links by section, each with the first sentence of its page."""
    lines = ["# grpo", "", f"> {_first_sentence(source('index.md').read_text())}", ""]
    for section, found in navigation():
        lines += [f"## {section or 'Start'}", ""]
        for title, place in found:
            said = _first_sentence(source(place).read_text())
            lines.append(f"- [{title}]({place.removesuffix('.md').replace('README', 'index')}.html): {said}")
        lines.append("")
    return "\n".join(lines)


def llms_full() -> str:
    """`llms-full.txt`: all pages of the navigation, one after the other, as they stand in the tree."""
    places = [place for _, found in navigation() for _, place in found]
    return "\n\n".join(f"<!-- {place} -->\n\n{source(place).read_text().strip()}" for place in places) + "\n"


def _pages(title: str, inside: Any) -> list[tuple[str, str]]:
    if isinstance(inside, str):
        return [(title, inside)]
    found: list[tuple[str, str]] = []
    for entry in inside:
        if isinstance(entry, str):
            found.append((title, entry))
        else:
            ((name, within),) = entry.items()
            found += _pages(name, within)
    return found


def _first_sentence(text: str) -> str:
    without = re.sub(r"^```.*?^```$|^<!--.*?-->$", "", text, flags=re.M | re.S)
    said = next((block for block in re.split(r"\n\s*\n", without) if PROSE.match(block)), "")
    said = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(said.split()))
    ends = (found.start() for found in re.finditer(r"\.\s", said) if said[: found.start()].count("`") % 2 == 0)
    return said[: next(ends, None)].rstrip(".:")
