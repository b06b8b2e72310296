"""Curves of held-out pass@1, a panel a recipe: `python docs/draw_curves.py RESULTS.jsonl [HIGHEST] > CURVES.svg`.

RESULTS.jsonl is what `bench/bench_recipes.py` leaves. Thin lines are seeds, thick ones their means; the placebo is
dashed. Where a recipe was not raced, its panel has the runs that tuned it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

WIDE, HIGH, LEFT, TOP, GAP = 220, 130, 34, 26, 24
COLOURS = {"recipe": "#1f6fb2", "placebo": "#8a8a8a", "tune": "#1f6fb2"}
Curve = list[tuple[float, float]]


def draw(results: Iterable[dict[str, Any]], columns: int = 3, highest: float = 1.0) -> str:
    """The picture as SVG, scores from 0 to `highest`; recipes in the order in which they first stand in the results."""
    ended = [one for one in results if "curve" in one]
    raced = {one["recipe"] for one in ended if one["arm"] == "recipe"}
    runs = [one for one in ended if one["arm"] != "tune" or one["recipe"] not in raced]
    names = list(dict.fromkeys(one["recipe"] for one in runs))
    columns = min(columns, len(names))
    lines = -(-len(names) // columns)
    width, height = LEFT + columns * (WIDE + GAP), lines * (TOP + HIGH + 2 * GAP)
    panels = [
        panel(
            name,
            [one for one in runs if one["recipe"] == name],
            LEFT + (i % columns) * (WIDE + GAP),
            TOP + (i // columns) * (TOP + HIGH + 2 * GAP),
            highest,
        )
        for i, name in enumerate(names)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="sans-serif" font-size="11" fill="#333">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *panels,
            "</svg>\n",
        ]
    )


def panel(name: str, runs: Sequence[dict[str, Any]], left: float, top: float, highest: float) -> str:
    """Both arms of one recipe, on axes from step 0 to the last and from 0 to `highest`."""
    last = max(step for one in runs for step, _ in one["curve"])
    out = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{name if "-" in name else f"smollm2-{name}"}</text>']
    for share in (0.0, 0.5, 1.0):
        y = top + HIGH * (1 - share)
        out.append(f'<path d="M{left} {y:g}h{WIDE}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 4}" y="{y + 4:g}" text-anchor="end">{share * highest:g}</text>')
    for step in (0, last):
        x = left + WIDE * step / last
        out.append(f'<text x="{x:g}" y="{top + HIGH + 14:g}" text-anchor="middle">{step}</text>')
    out.append(f'<text x="{left + WIDE / 2:g}" y="{top + HIGH + 14:g}" text-anchor="middle">step</text>')

    def path(curve: Curve, look: str) -> str:
        spots = (f"{left + WIDE * step / last:.1f} {top + HIGH * (1 - score / highest):.1f}" for step, score in curve)
        return f'<path d="M{" L".join(spots)}" fill="none" {look}/>'

    for arm in COLOURS:
        curves = [[(step, score) for step, score in one["curve"]] for one in runs if one["arm"] == arm]
        look = f'stroke="{COLOURS[arm]}"' + (' stroke-dasharray="4 3"' if arm == "placebo" else "")
        out += [path(curve, f'{look} stroke-width="0.7" opacity="0.5"') for curve in curves]
        out += [path(mean(curves), f'{look} stroke-width="2.4"')] if curves and arm != "tune" else []
    return "\n".join(out)


def mean(curves: Sequence[Curve]) -> Curve:
    """The mean of the scores at each step that all curves have."""
    tables = [dict(curve) for curve in curves]
    steps = [step for step, _ in curves[0] if all(step in one for one in tables)]
    return [(step, statistics.fmean(one[step] for one in tables)) for step in steps]


if __name__ == "__main__":
    found = map(json.loads, Path(sys.argv[1]).read_text().splitlines())
    print(draw(found, highest=float(sys.argv[2]) if len(sys.argv) > 2 else 1.0), end="")
