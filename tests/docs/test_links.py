"""Every relative link of every page leads to a file and, where it names one, to a heading."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, links, pages


def broken(page: Path, found: Iterable[str]) -> list[str]:
    """Those of a page's links that are relative and lead nowhere."""
    lost: list[str] = []
    for link in found:
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_there = target.exists() and target.is_relative_to(ROOT)
        if is_there and anchor:
            is_there = target.suffix == ".md" and anchor in anchors(target)
        if not is_there:
            lost.append(link)
    return lost


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken(page, links(page)) == []


def test_a_link_to_no_file_no_heading_or_out_of_the_tree_is_found() -> None:
    page = ROOT / "docs" / "limits.md"
    wrong = ["none.md", "recipe.md#none", "../../x", "#no-such", "live.svg#part"]
    right = ["recipe.md#model", "recipe.md", "#not-there", "live.svg", "https://example.org/none.md"]
    assert broken(page, [*right, *wrong]) == wrong


def test_links_in_code_are_no_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](b.md) `[c](d.md)`\n\n```\n[e](f.md)\n```\n\n## One `two`\n\n## One two\n")
    assert list(links(page)) == ["b.md"]
    assert anchors(page) == {"one-two", "one-two-1"}


def test_every_page_is_reached_from_the_readme() -> None:
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = [(page.parent / link.split("#")[0]).resolve() for link in links(page) if "://" not in link]
        ahead += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert {page for page in pages() if ".github" not in page.parts} <= seen


def test_every_picture_is_on_a_page() -> None:
    shown = {(page.parent / link).resolve() for page in pages() for link in links(page) if "://" not in link}
    drawn = {file for kind in ("png", "svg") for file in (ROOT / "docs").rglob(f"*.{kind}")}
    assert drawn and drawn <= shown
