"""docs/reference/ and llms.txt are what the program says now; a change of the program is noticed; the site has every page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from docs.generate import outputs, recipe
from docs.generate.hooks import PLACES, lead_links
from docs.generate.keys import key_paths
from docs.generate.llms import llms_full, llms_page, navigation
from docs.generate.markdown import code, code_cell, table
from docs.generate.write import DOCS, PAGES
from grpo_cli.errors import Exit
from grpo_verifiers.registry import KINDS
from tests.docs.pages import ROOT, pages


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_program_says(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "`make docs` writes it anew"


def test_a_key_with_another_default_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = recipe.describe

    def changed(name: str) -> dict[str, Any]:
        return true(name) | ({"default": 0.25} if name == "train.clip.low" else {})

    monkeypatch.setattr(recipe, "describe", changed)
    before = (DOCS / "reference" / "recipe.md").read_text().splitlines()
    after = recipe.recipe_page().splitlines()
    assert [b for a, b in zip(before, after, strict=True) if a != b] == ["Values: `number >= 0`. Default: `0.25`."]


def test_no_key_of_a_recipe_is_lost_and_a_new_one_is_listed() -> None:
    promised, there = json.loads((DOCS / "promises.json").read_text())["recipe"], key_paths()
    assert set(promised) - set(there) == set(), "gone or renamed: docs/promises.md says what that takes"
    assert set(there) - set(promised) == set(), "new: `make promises` lists them"


def test_every_kind_and_command_has_a_heading_and_every_exit_code_a_meaning() -> None:
    headings = {
        name: set(re.findall(r"^##+ `?(.+?)`?$", (DOCS / "reference" / name).read_text(), re.M))
        for name in ("verifiers.md", "commands.md")
    }
    assert set(KINDS) <= headings["verifiers.md"]
    assert {"grpo train", "grpo runs compare", "grpo schema"} <= headings["commands.md"]
    assert set(outputs.MEANS) == set(Exit)


def test_the_navigation_has_every_page_once() -> None:
    places = [place for _, found in navigation() for _, place in found]
    ours = {str(page.relative_to(DOCS)) for page in pages() if page.is_relative_to(DOCS)}
    assert len(places) == len(set(places))
    assert set(places) == ours | {place for place in PLACES.values() if place.endswith(".md")}


def test_llms_txt_says_something_of_every_page_and_the_full_text_has_them_all() -> None:
    lines = re.findall(r"^- \[(.+?)\]\((.+?)\): (.+)$", llms_page(), re.M)
    assert len(lines) == sum(len(found) for _, found in navigation())
    assert all(len(said.split()) >= 3 for _, _, said in lines), lines
    assert "# First run" in llms_full() and "# Recipe keys" in llms_full()


def test_links_are_led_to_where_pages_lie_on_the_site() -> None:
    text = "[a](../CONTRIBUTING.md#pages) `[b](../README.md)` [`c`](recipe.md)\n\n```\n[d](../README.md)\n```\n"
    assert lead_links(text, "promises.md") == text.replace("../CONTRIBUTING.md", "contributing.md")
    assert (
        lead_links("![l](docs/live.svg) [r](docs/recipe.md#model)", "index.md") == "![l](live.svg) [r](recipe.md#model)"
    )
    assert lead_links("[p](../../verifiers/README.md)", "verifiers/README.md") == "[p](package.md)"
    assert lead_links("[x](https://example.org) [y](#there)", "limits.md") == "[x](https://example.org) [y](#there)"


def test_cells_keep_their_table_whole() -> None:
    assert code_cell("a | b") == "<code>a &#124; b</code>" and code("a`b") == "`` a`b ``" and code("") == ""
    assert table(("one", "two"), [("1", "2")]) == "| one | two |\n| --- | --- |\n| 1 | 2 |\n"


def test_the_tree_names_no_page_that_the_site_has_not() -> None:
    assert all((ROOT / path).exists() for path in PLACES)
