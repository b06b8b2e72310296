"""The report in a real browser: no request, no error, hostile text inert, figures equal to `metrics.jsonl`, clicks work."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium

from grpo_cli.findings.run_data import arms_of, collect
from grpo_cli.jobs.report import write_report
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from tests.builders.report_runs import make_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    found = Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(tmp_path_factory.mktemp("runs"), "hostile")


@pytest.fixture(scope="module")
def page(run: RunFolder) -> Path:
    return write_report(arms_of([collect(run)]), run.path / "report.html")


def draw_all(browser: Chromium) -> None:
    browser.run("plots.forEach(draw)")
    browser.wait("[...document.querySelectorAll('.plot')].every((p) => p.clientWidth === 0 || p.querySelector('svg'))")


def test_it_opens_without_an_error_and_without_a_request(browser: Chromium, page: Path) -> None:
    browser.open(page)
    draw_all(browser)
    assert browser.errors == []
    assert {url.split(":")[0] for url in browser.requests} <= {"file", "data", "blob"}
    assert len([url for url in browser.requests if url.startswith("file:")]) == 1


def test_hostile_text_neither_runs_nor_breaks_the_page(browser: Chromium, page: Path) -> None:
    browser.open(page)
    draw_all(browser)
    for _ in range(16):
        browser.run("document.querySelector('.browser button:nth-of-type(2)').click()")
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.run("window.hacked") is None
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.run("document.querySelectorAll('main img, main iframe, main a[href^=javascript]').length") == 0
    text = browser.run("document.body.innerText")
    assert "\x1b" not in text and "\u202e" not in text
    assert "</script><script>" in text
    assert browser.errors == []


def traces(browser: Chromium, figure: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = browser.run(
        f"document.querySelector('[data-figure=\"{figure}\"]').data.map((t) => ({{name: t.name, x: [...t.x], y: [...(t.y || t.high || [])]}}))"
    )
    return {trace["name"]: (trace["x"], trace["y"]) for trace in found}


def near(values: list[Any]) -> Any:
    """Equal in the digits that the page has."""
    return pytest.approx(values, rel=1e-4)


def test_figures_hold_the_numbers_of_the_metrics_file(browser: Chromium, page: Path, run: RunFolder) -> None:
    browser.open(page)
    draw_all(browser)
    steps = [m for m in run.metrics() if "group/count" in m]
    evaluations = [m for m in run.metrics() if "eval/pass@1" in m]
    numbers = [m["step"] for m in steps]

    def curve(key: str) -> tuple[list[int], Any]:
        return numbers, near([m[key] for m in steps])

    assert traces(browser, "reward")["total"] == curve("reward/total/mean")
    assert traces(browser, "policy")["entropy"] == curve("entropy")
    assert traces(browser, "policy")["kl"] == curve("kl")
    assert traces(browser, "lengths")["right"] == curve("length/right")
    assert traces(browser, "lengths")["truncated"] == curve("truncated")
    assert traces(browser, "timing")["generate"] == curve("time/generate")
    assert traces(browser, "groups")["with signal"] == curve("group/signal")
    assert traces(browser, "groups")["mixed"][1] == near([m["group/mixed"] / m["group/count"] for m in steps])
    errors = [m["verify/math/error"] / m["verify/math/calls"] for m in steps]
    assert traces(browser, "verifiers")["error"][1] == near(errors)
    held_out = next(v for k, v in traces(browser, "held-out").items() if "gsm8k" in k)
    assert held_out == ([m["step"] for m in evaluations], near([m["eval/pass@1"] for m in evaluations]))


def test_prompts_can_be_clicked_through(browser: Chromium, page: Path) -> None:
    browser.open(page)

    def shown() -> str:
        text: str = browser.run(
            "document.querySelector('.browser .note').textContent + document.querySelector('.browser select').value"
        )
        return text

    first = shown()
    browser.click(".browser button:nth-of-type(2)")
    second = shown()
    assert second != first
    browser.click(".browser button:nth-of-type(1)")
    assert shown() == first
    browser.run(
        "(() => { const s = document.querySelector('.browser select'); s.value = 3; s.dispatchEvent(new Event('change')); })()"
    )
    assert shown().endswith("3")
    assert browser.run("document.querySelectorAll('.browser .moment').length") == 5
    browser.click(".surprises summary")
    assert browser.run("document.querySelector('.surprises details').open")


def counted(browser: Chromium) -> str:
    text: str = browser.run("document.querySelector('.reader .count').textContent")
    return text


def choose(browser: Chromium, control: str, value: str) -> None:
    browser.run(
        f"(() => {{ const c = document.querySelector('.reader .by-{control}'); c.value = {json.dumps(value)};"
        " c.dispatchEvent(new Event('input')); })()"
    )


def test_the_reader_filters_all_samples_of_the_run(browser: Chromium, page: Path, run: RunFolder) -> None:
    browser.open(page)
    stored = [record for step in run.steps() for record in run.samples(step)]
    held = [record for step in run.steps("eval") for record in run.samples(step, "eval")]
    assert counted(browser).startswith(f"{len(stored) + len(held)} of {len(stored) + len(held)} samples")
    choose(browser, "split", "training")
    assert counted(browser).startswith(f"{len(stored)} of ")
    choose(browser, "outcome", "no_answer")
    no_answer = [record for record in stored if record.outcome == "no_answer"]
    assert counted(browser).startswith(f"{len(no_answer)} of ")
    choose(browser, "step", "7")
    assert counted(browser).startswith(f"{sum(r.step == 7 for r in no_answer)} of ")
    choose(browser, "step", "")
    choose(browser, "outcome", "")
    choose(browser, "reason", "too_long")
    too_long = [r for r in stored if any(v.reason == "too_long" for v in r.verdicts.values())]
    assert counted(browser).startswith(f"{len(too_long)} of ")
    choose(browser, "row", "row3-1")
    assert counted(browser).startswith(f"{sum('row3-1' in r.row for r in too_long)} of ")
    choose(browser, "row", "")
    choose(browser, "reason", "")
    choose(browser, "search", "日本語")
    wanted = [r for r in stored if "日本語" in r.prompt[-6000:] + "\n" + r.completion[-6000:]]
    assert counted(browser).startswith(f"{len(wanted)} of ")
    assert browser.run("document.querySelector('.reader mark').textContent") == "日本語"
    browser.run("document.querySelector('.reader .by-whole').click()")
    assert counted(browser).startswith(f"{len(wanted)} of ")
    assert browser.run("window.hacked") is None
    assert browser.errors == []


def test_a_group_shows_its_samples_by_advantage(browser: Chromium, page: Path) -> None:
    browser.open(page)
    choose(browser, "split", "training")
    facts = browser.run(
        "[...document.querySelectorAll('.reader .group[open] .sample > .facts:first-child')].map((f) => f.textContent)"
    )
    assert len(facts) == 4
    found = [re.search(r"advantage (-?[\d.]+)", fact) for fact in facts]
    values = [float(match[1]) for match in found if match]
    assert values == sorted(values, reverse=True) and len(values) == 4


def test_an_episode_is_shown_turn_by_turn(browser: Chromium, tmp_path: Path) -> None:
    folder = make_run(tmp_path, "episodes", steps=1, hostile=False)
    turns = [
        {"text": "<act>left</act>", "observation": "a wall", "tokens": 5, "reward": 0.0, "valid": False},
        {"text": "<act>up</act>", "observation": "<b>the door</b>", "tokens": 6, "reward": 1.0, "milestone": "door", "advantage": 0.7},
    ]  # fmt: skip
    folder.write_samples(
        2, [SampleRecord(2, "room", 0, "go", "<act>left</act>", reward=1.0, tokens=11, turns=turns, values=[0.25, 0.5])]
    )
    page = write_report(arms_of([collect(folder)]), tmp_path / "episodes.html")
    browser.open(page)
    choose(browser, "row", "room")
    shown = browser.run("[...document.querySelectorAll('.reader .turns li')].map((turn) => turn.innerText)")
    assert len(shown) == 2
    assert "not valid" in shown[0] and "a wall" in shown[0]
    assert "value before 0.250" in shown[0] and "value before 0.500" in shown[1]
    assert "milestone door" in shown[1] and "advantage 0.700" in shown[1] and "<b>the door</b>" in shown[1]


def test_the_whole_folder_can_be_opened_where_the_page_holds_a_part(
    browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, "long", hostile=False)
    monkeypatch.setattr("grpo_cli.jobs.report.page.MOST_PACKED", 4000)
    browser.open(write_report(arms_of([collect(folder)]), tmp_path / "long.html"))
    assert "sample files are on this page" in counted(browser)
    document = browser.send("DOM.getDocument")["root"]["nodeId"]
    node = browser.send("DOM.querySelector", nodeId=document, selector=".reader .by-folder")["nodeId"]
    browser.send("DOM.setFileInputFiles", nodeId=node, files=[str(folder.path)])
    browser.wait("document.querySelector('.reader .count').textContent.includes('all of this folder')")
    assert counted(browser).startswith(f"{20 * 16 + 5 * 32} of ")
    assert browser.errors == []


def test_dense_curves_are_smoothed_until_told_not_to(browser: Chromium, tmp_path: Path) -> None:
    folder = make_run(tmp_path, "dense", steps=130, hostile=False)
    browser.open(write_report(arms_of([collect(folder)]), tmp_path / "dense.html"))
    draw_all(browser)
    path = "document.querySelectorAll('[data-figure=reward] path[stroke]')[0].getAttribute('d')"
    smooth = browser.run(path)
    browser.run(
        "(() => { const c = document.getElementById('smooth'); c.value = 'off'; c.dispatchEvent(new Event('change')); })()"
    )
    measured = browser.run(path)
    assert smooth != measured and measured.count("L") == smooth.count("L") == 129


def test_a_line_over_areas_has_no_band_that_changes_their_colours(browser: Chromium, tmp_path: Path) -> None:
    folder = make_run(tmp_path, "dense", steps=130, hostile=False)
    browser.open(write_report(arms_of([collect(folder)]), tmp_path / "dense.html"))
    draw_all(browser)
    fills = "[...document.querySelectorAll('[data-figure={}] path')].map((p) => p.getAttribute('fill-opacity')).filter(Boolean)"
    assert browser.run(fills.format("groups")) == ["0.85"] * 3
    assert "0.22" in browser.run(fills.format("policy"))


def test_a_curve_measured_now_and_then_shows_each_point(browser: Chromium, tmp_path: Path) -> None:
    folder = make_run(tmp_path, "sparse", steps=130, hostile=False)
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "reward/total/mean" in line]
    assert len(steps) == 130
    for i, line in enumerate(steps):
        line["kl"] = 0.01 * (1 + i) if i % 10 == 0 else None
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    browser.open(write_report(arms_of([collect(folder)]), tmp_path / "sparse.html"))
    draw_all(browser)
    panels = "[...document.querySelectorAll('[data-figure=policy] .panel')]"
    assert browser.run(f"{panels}.filter(p => p.querySelectorAll('circle').length === 13).length") == 1


def test_the_theme_follows_the_system_and_the_button(browser: Chromium, page: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, dark=True)
    dark = browser.run(colour)
    scheme = "getComputedStyle(document.documentElement).colorScheme"  # of buttons that the browser draws itself
    assert browser.run(scheme) == "dark"
    browser.click("#theme")
    assert browser.run(colour) == "rgb(255, 255, 255)" != dark
    assert browser.run(scheme) == "light"


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_the_page_never_scrolls_sideways(browser: Chromium, page: Path, width: int) -> None:
    browser.open(page, width=width)
    draw_all(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_several_runs_are_laid_over_each_other(browser: Chromium, tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"seed{s}", seed=s, hostile=False) for s in range(3)]
    other = make_run(tmp_path, "other", lr="1e-5", hostile=False)
    placebo = make_run(tmp_path, "placebo", learns=False, hostile=False)
    arms = arms_of([collect(r) for r in (*runs, other)], [collect(placebo)])
    assert [(arm.label, len(arm.runs), arm.is_placebo) for arm in arms] == [
        ("lr=1e-06", 3, False),
        ("lr=1e-05", 1, False),
        ("placebo", 1, True),
    ]
    page = write_report(arms, tmp_path / "seeds.html")
    browser.open(page)
    names = traces(browser, "reward-all")
    lines = [[m["reward/total/mean"] for m in r.metrics() if "group/count" in m] for r in runs]
    assert names["lr=1e-06, mean of 3 seeds"][1] == pytest.approx(
        [sum(column) / 3 for column in zip(*lines, strict=True)], rel=1e-4
    )
    assert names["lr=1e-06, range"][1] == pytest.approx([max(column) for column in zip(*lines, strict=True)], rel=1e-4)
    assert "placebo" in names
    draw_all(browser)
    dots = "document.querySelectorAll('[data-figure=reward-all] circle').length"
    assert browser.run(dots) == sum(
        len(names[name][1]) for name in (f"{arms[0].label}, mean of 3 seeds", arms[1].label, "placebo")
    )
    browser.click("details.run summary")
    browser.wait("document.querySelector('details.run .plot svg') !== null")
    assert browser.errors == []


def test_screenshots_for_the_eye(browser: Chromium, page: Path, tmp_path: Path) -> None:
    """Kept where GRPO_SCREENSHOTS says, for a person to look at."""
    target = Path(os.environ.get("GRPO_SCREENSHOTS", tmp_path))
    target.mkdir(exist_ok=True)
    for name, width, dark in (
        ("wide-light", 1400, False),
        ("wide-dark", 1400, True),
        ("narrow-light", 390, False),
        ("narrow-dark", 390, True),
    ):
        browser.open(page, width=width, dark=dark)
        draw_all(browser)
        browser.screenshot(target / f"report-{name}.png")
        assert (target / f"report-{name}.png").stat().st_size > 50_000


def test_tables_fit_a_narrow_screen_and_axes_say_a_scale(browser: Chromium, tmp_path: Path) -> None:
    runs = [collect(make_run(tmp_path, f"seed-{seed}", seed=seed, hostile=False)) for seed in range(3)]
    page = write_report(arms_of(runs), tmp_path / "three.html")
    for width in (400, 1400):
        browser.open(page, width=width)
        browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        draw_all(browser)
        cut = "[...document.querySelectorAll('.stacked td')].filter((e) => e.getBoundingClientRect().right > innerWidth).length"
        assert browser.run("document.querySelectorAll('.stacked td').length") > 20
        assert browser.run(cut) == 0
        marks = "[...document.querySelectorAll('.plot svg')].map((s) => s.querySelectorAll('.grid').length)"
        assert min(n for n in browser.run(marks) if n) >= 2


def test_names_of_rows_and_labels_beside_long_values_are_whole(browser: Chromium, tmp_path: Path) -> None:
    folder = make_run(tmp_path, "narrow", hostile=False)
    for file in (folder.path / "eval").iterdir():  # a row's name as the program makes it: hexadecimal digits
        file.write_text(file.read_text().replace('"held', '"d86c0a3fb'))
    browser.open(write_report(arms_of([collect(folder)]), tmp_path / "long.html"), width=400)
    draw_all(browser)
    starts = "[...document.querySelectorAll('.plot svg text')].map((t) => t.getBBox().x)"
    assert browser.run("document.querySelectorAll('[data-figure=prompts] svg text').length") > 0
    assert min(browser.run(starts)) >= 0
    browser.run(
        "document.querySelectorAll('.stacked td').forEach((cell) => { cell.textContent = 'a long value '.repeat(40); })"
    )
    widths = (
        "[...document.querySelectorAll('.stacked td')].map((c) => parseFloat(getComputedStyle(c, '::before').width))"
    )
    assert min(browser.run(widths)) > 30
