"""The picture of the recipes' curves is drawn from the results that lie beside it, and the figures of the page are theirs."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

from bench.bench_arms import middle
from bench.bench_recipes import ARMS, RATES
from tests.docs.pages import ROOT

PAGES = ROOT / "docs" / "benchmarks"


def results(name: str = "recipes") -> list[dict[str, Any]]:
    """One object a run."""
    return [json.loads(line) for line in (PAGES / f"{name}.jsonl").read_text().splitlines()]


def test_the_curves_are_those_of_the_results() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "draw_curves.py"))["draw"]
    assert (PAGES / "recipes.svg").read_text() == draw(results())
    assert (PAGES / "gsm8k.svg").read_text() == draw(results("gsm8k"), highest=0.1)


def test_the_gsm8k_page_says_the_scores_of_its_runs() -> None:
    page = (PAGES / "gsm8k.md").read_text()
    runs = [one for one in results("gsm8k") if one["arm"] == "recipe"]
    assert len(runs) == 5
    for one in runs:
        cells = [f"{score:.4f}"[1:] for _, score in one["curve"]]
        assert f"| RL, seed {one['seed']} | " + " | ".join(cells) + " |" in page


def test_the_table_says_the_means_of_the_results() -> None:
    page = (PAGES / "recipes.md").read_text()
    raced = {one["recipe"] for one in results() if one["arm"] == "recipe"}
    assert raced == RATES.keys() - {"guess", "records", "sql", "instructions"}  # tuned only: the card's time was over
    for recipe in raced:
        for arm in ARMS:
            runs = [one for one in results() if (one["recipe"], one["arm"]) == (recipe, arm)]
            before, after = (middle([one[key] for one in runs]) for key in ("before", "after"))
            line = next(
                line for line in page.splitlines() if re.match(rf"\| `smollm2-{recipe}`[^|]* \| {arm} \|", line)
            )
            for said in (before, after):
                assert said.replace("0.", ".") in line, (recipe, arm, said)
