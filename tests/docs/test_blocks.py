"""Every block of every page is run, saved, loaded or drawn, or says why not; which target runs what, and how many are left out."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.docs.pages import FENCE, ROOT, Block, blocks, pages

DOCS = ROOT / "docs"
OWN = [ROOT / "README.md", ROOT / "verifiers" / "README.md"]
WRITTEN = DOCS / "reference"
"""Generated; its examples are loaded by `tests/jobs/explain` and compared by `test_reference`."""
MEASURED = DOCS / "benchmarks"
"""Pages of figures: the command of each is at its head, and takes hours."""
LEFT_OUT = {
    "report.md": ["needs a model hub", "needs Ollama"],
    "several-gpus.md": ["needs Slurm; `tests/docs` runs the script with stand-ins for its commands"],
    "environments-of-others.md": [
        "needs the package mcp-server-time",
        "needs the package gymnasium",
        "needs the package verifiers",
    ],
    "environments.md": ["needs the package TextWorld; `make test-textworld` plays its games"],
}
"""Blocks that are not run here. One more has to be named here too."""


def told() -> list[Path]:
    """Pages whose blocks a reader follows."""
    ours = [page for page in pages() if page.is_relative_to(DOCS)]
    return OWN + [page for page in ours if not page.is_relative_to(WRITTEN) and not page.is_relative_to(MEASURED)]


def is_drawn(block: Block) -> bool:
    """Whether it only shows something: no line of it is a command."""
    return block.language in ("", "text") and not re.search(r"^(\$ |grpo |make |python )", block.text, re.M)


def test_every_block_is_run_saved_loaded_or_drawn() -> None:
    unclear = [
        (page.name, block.heading, block.language)
        for page in told()
        for block in blocks(page)
        if not (
            block.language in ("sh", "console", "yaml", "python")
            or (block.language == "json" and block.file)
            or is_drawn(block)
        )
    ]
    assert unclear == []


def test_no_command_hides_in_an_indented_block() -> None:
    for page in told():
        indented = re.findall(r"^ {4}(?:grpo|make|python|pip|cd) .*$", FENCE.sub("", page.read_text()), re.M)
        assert indented == [], page.name


def test_what_is_not_run_here_is_counted_and_says_why() -> None:
    found = {page.name: [b.not_run for b in blocks(page) if b.not_run] for page in told()}
    assert {name: reasons for name, reasons in found.items() if reasons} == LEFT_OUT
    languages = Counter(block.language for page in told() for block in blocks(page) if not block.not_run)
    assert languages["sh"] >= 18 and languages["console"] >= 5 and languages["yaml"] >= 35 and languages["python"] >= 12


def test_make_targets_that_pages_name_are_there() -> None:
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    said = re.compile(r"(?:^|`|\n)make ([a-z][\w-]*)")
    named = {name for page in pages() for name in said.findall(page.read_text())}
    assert named - known == set() and "docs" in named


def test_a_file_a_reason_and_a_loose_output_are_read_from_the_line_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\nWrite `a/b.py`, a thing:\n\n```python\n1\n```\n\n<!-- not run here: needs X -->\n```sh\nx\n```\n\n"
        "<!-- not compared: by chance -->\n```console\n$ y\n```\n\nSee `c.py`. It works:\n\n```python\n2\n```\n"
    )
    found = [(block.file, block.not_run, block.loose) for block in blocks(page)]
    assert found == [("a/b.py", "", ""), ("", "needs X", ""), ("", "", "by chance"), ("", "", "")]
