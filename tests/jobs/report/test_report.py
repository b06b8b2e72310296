"""The report without a browser: what is read, how runs become arms, and that no text can act."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_cli.errors import DataError, SetupError
from grpo_cli.findings.finding import Finding
from grpo_cli.findings.run_data import arms_of, collect, differing_keys, flat_recipe
from grpo_cli.jobs.report.arms import verdict
from grpo_cli.jobs.report.page import build_page, embedded, grouped_findings, stage_tables, write_report
from grpo_cli.jobs.report.plot import groups, held_out, policy, rewards
from grpo_cli.jobs.report.reading import pack_samples, packed_line, probes, read_samples, surprises_of
from grpo_cli.jobs.report.templates import environment
from grpo_cli.run.folder import RunFolder, Split
from grpo_cli.run.reading import ReadOnce, spread, steps_to_read
from grpo_cli.run.records import SampleRecord
from tests.builders.report_runs import HOSTILE, make_run, sample

ROOT = Path(__file__).resolve().parents[3]


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded({"x": [*HOSTILE, "\u2028"]})
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text)["x"][0] == HOSTILE[0]


def test_hostile_text_stands_escaped_and_the_policy_names_the_one_script(tmp_path: Path) -> None:
    page = build_page(arms_of([collect(make_run(tmp_path, "hostile"))]))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "gsm8k&lt;b&gt;.yaml" in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert policy[1].count("'sha256-") == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


def test_the_outcome_is_paired_and_says_what_it_could_have_seen(tmp_path: Path) -> None:
    said = verdict(collect(make_run(tmp_path, "learns", hostile=False)))
    assert re.search(r"held-out pass@1 0\.\d{3} ±\.100 → 0\.\d{3} ±\.100 \(n 16\), step 0 → 20", said)
    assert re.search(r"Paired on \d+ prompts: \+0\.\d{3} ±\.\d{3}, p", said)
    assert "80 % power" in said


def test_a_run_that_was_measured_once_claims_nothing(tmp_path: Path) -> None:
    assert "nothing can be said" in verdict(collect(make_run(tmp_path, "short", steps=4)))


def test_a_chain_says_each_stage_before_and_after_and_seeds_are_taken_together(tmp_path: Path) -> None:
    def chain(name: str, seed: int, *after: float | None) -> RunFolder:
        def at(value: float | None) -> dict[str, float] | None:
            return None if value is None else {"pass@1": value, "low": value - 0.1, "high": value + 0.1, "n": 16}

        folder = make_run(tmp_path, name, seed=seed, steps=2, hostile=False)
        stages = [
            {"name": f"{HOSTILE[1]}{i}", "folder": f"stage-{i}", "steps": 5, "before": at(0.2), "after": at(end)}
            for i, end in enumerate(after)
        ]
        folder.update_manifest(stages=stages)
        return folder

    one, two, plain = (chain("one", 0, 0.5, None), chain("two", 1, 0.7, 0.9), make_run(tmp_path, "plain", seed=2))
    (table,) = stage_tables(arms_of([collect(one)]))
    assert [(row.steps, row.before, row.after, row.n) for row in table.rows] == [
        ("1 to 5", "0.200 [0.100, 0.300]", "0.500 [0.400, 0.600]", "16"),
        ("6 to 10", "0.200 [0.100, 0.300]", "—", "—"),
    ]
    (table,) = stage_tables(arms_of([collect(one), collect(two)]))
    assert table.rows[0].after == "0.600 [-0.671, 1.871]" and "over 2 seeds" in table.how
    assert stage_tables(arms_of([collect(plain)])) == []
    page = build_page(arms_of([collect(two)]))
    assert ">0.900 [0.800, 1.000]</td>" in page and "<img" not in page


def test_runs_that_differ_in_their_seed_share_an_arm(tmp_path: Path) -> None:
    runs = [collect(make_run(tmp_path, f"s{s}", seed=s, steps=2)) for s in range(2)]
    other = collect(make_run(tmp_path, "other", lr="1e-5", steps=2))
    assert [(a.label, len(a.runs)) for a in arms_of([*runs, other])] == [("lr=1e-06", 2), ("lr=1e-05", 1)]
    assert differing_keys([r.recipe for r in (*runs, other)]) == ["train.lr"]


def test_a_finding_said_often_is_one_entry_with_its_steps_and_samples(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "often", steps=2)
    found = tuple(Finding("W20", step, f"{step} % were cut off", "raise the cap") for step in (1, 2, 2))
    groups = grouped_findings(replace(collect(folder), findings=(*found, Finding("W40", 1, "errors", "look"))))
    assert [(group.code, group.count, group.when) for group in groups] == [
        ("W20", 3, "3 times, steps 1 to 2"),
        ("W40", 1, "step 1"),
    ]
    assert [finding.step for finding in groups[0].earlier] == [1, 2]
    assert groups[1].sample_step == 1
    assert groups[1].samples


@pytest.mark.parametrize("text", HOSTILE)
def test_a_template_writes_any_text_escaped_and_visible(text: str) -> None:
    page = environment().from_string("{{ text }}{{ text | in_lines }}").render(text=text)
    assert "<" not in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800]", page)


def test_figures_take_their_numbers_from_the_metrics(tmp_path: Path) -> None:
    run = collect(make_run(tmp_path, "a"))
    figure = groups(run)
    assert figure is not None
    mixed = next(t for t in figure.traces if t["name"] == "mixed")
    assert mixed["y"] == [m["group/mixed"] / m["group/count"] for m in run.steps]
    reward = rewards(run, {})
    assert reward is not None
    assert reward.traces[0]["y"] == [m["reward/total/mean"] for m in run.steps]


def test_a_number_that_is_not_finite_is_a_gap(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "a", steps=1)
    folder.write_metrics({"step": 2, "group/count": 4, "reward/total/mean": float("nan")})
    figure = rewards(collect(folder), {})
    assert figure is not None
    assert figure.traces[0]["y"][-1] is None


def test_words_between_backticks_are_code_and_nothing_else_acts(tmp_path: Path) -> None:
    page = build_page(arms_of([collect(make_run(tmp_path, "a"))]))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert any("<code>entropy/sampled</code>" in caption for caption in captions)
    assert not any("`" in caption for caption in captions)
    text = environment().from_string("{{ x | with_code }}").render(x="set `<b>` to\x1b `a` and ` alone")
    assert text == "set <code>&lt;b&gt;</code> to␛ <code>a</code> and ` alone"


def test_a_colour_of_the_policy_means_one_curve(tmp_path: Path) -> None:
    run = collect(make_run(tmp_path, "a", steps=3))
    for metrics in run.steps:
        metrics.update({"clip/total": 0.1, "clip/low": 0.01, "clip/high": 0.1, "value/mean": 1, "return/mean": 1})
        metrics.update({"entropy/sampled": 0.5})
    drawn = policy(run)
    assert drawn is not None
    panels = Counter(trace["panel"] for trace in drawn.traces)
    shared = [trace for trace in drawn.traces if panels[trace["panel"]] > 1]
    assert len(shared) == 7 == len({trace["line"]["color"] for trace in shared})


def test_spread_keeps_the_ends() -> None:
    assert spread(list(range(100)), 5) == [0, 25, 50, 74, 99]
    assert spread([1, 2], 5) == [1, 2]


def test_the_page_reads_each_file_of_samples_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path, "a", steps=130)
    read: Counter[tuple[int, str]] = Counter()
    plain = RunFolder.samples

    def counted(self: RunFolder, step: int, split: Split = "train") -> Iterator[SampleRecord]:
        read[step, split] += 1
        return plain(self, step, split)

    monkeypatch.setattr(RunFolder, "samples", counted)
    build_page(arms_of([collect(folder)]))
    assert set(read.values()) == {1}, read
    assert len(steps_to_read(folder)) == 100
    assert {step for step, split in read if split == "eval"} == set(folder.steps("eval"))


def test_files_that_are_too_large_to_keep_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_cli.run.reading.KEPT_BYTES", 1000)
    folder = make_run(tmp_path, "a", steps=2)
    once = ReadOnce(folder)
    for _ in range(2):
        assert list(once.samples(2)) == list(folder.samples(2))
    assert not once._kept


def test_a_short_run_is_packed_whole_and_a_long_one_by_whole_steps(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "a")
    pack = pack_samples(folder)
    lines = [json.loads(line) for line in gzip.decompress(base64.b64decode(pack.text)).decode().splitlines()]
    assert (pack.steps, pack.all_steps) == (25, 25)
    assert len(lines) == pack.samples == 20 * 16 + 5 * 32
    for line in lines:
        name, number = line["place"].rsplit(":", 1)
        stored = RunFolder.open(folder.path).path.joinpath(name).read_text(errors="surrogatepass").split("\n")
        assert json.loads(stored[int(number) - 1])["row"] == line["row"]
    small = pack_samples(folder, 9000)
    assert 0 < small.steps < 25 and len(small.text) <= 9000
    kept = [json.loads(line) for line in gzip.decompress(base64.b64decode(small.text)).decode().splitlines()]
    sizes = Counter((line["place"].split(":")[0]) for line in kept)
    assert all(n == (32 if name.startswith("eval/") else 16) for name, n in sizes.items())
    assert pack_samples(folder, 10).samples == 0


def test_a_row_column_named_like_ours_does_not_take_its_place(tmp_path: Path) -> None:
    record = SampleRecord(1, "r", 0, "p" * 7000, "c", {"prompt": "the row's own", "answer": {"x": 1}, "note": "long"})
    line = packed_line(record)
    assert line["prompt"] == "…" + "p" * 6000
    assert line["answer"] == '{"x": 1}'
    assert "note" not in line


def test_surprises_are_the_lone_ones_the_longest_and_the_failures() -> None:
    import random

    rng = random.Random(0)
    group = [(i, sample(rng, 1, "r", 0, 0.0, False)) for i in range(1, 8)]
    group.append((8, sample(rng, 1, "r", 0, 1.0, False)))
    kinds = {kind: line for kind, _, line, _ in surprises_of(group)}
    assert kinds["lone right in a wrong group"] == 8
    assert {"longest", "shortest right", "verifier error", "over limit"} <= kinds.keys()


def test_prompts_over_time_are_those_that_every_evaluation_asked(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "a")
    middle = folder.sample_path(10, "eval")
    middle.write_text(
        "".join(middle.read_text(errors="surrogatepass").splitlines(keepends=True)[:8]), errors="surrogatepass"
    )
    rows, steps, rates = read_samples(folder).heat
    assert (len(rows), len(steps)) == (4, 5)
    assert all(rate is not None for row in rates for rate in row)
    for metrics in (run := collect(folder)).evaluations[1:3]:
        metrics["eval/n"] = 4
    drawn = held_out(arms_of([run]))
    assert drawn is not None and "4 to 16 prompts" in drawn.caption


def test_probes_begin_with_those_that_gained_lost_and_never_moved() -> None:
    rates: dict[str, list[float | None]] = {
        "up": [0.0, 1.0],
        "down": [1.0, 0.0],
        "never": [0.0, 0.0],
        "always": [1.0, 1.0],
    }
    assert probes(list(rates), rates) == ["up", "down", "never", "always"]


def test_every_sample_names_its_file_and_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "a")
    reading = read_samples(folder)
    for entry in reading.surprises:
        name, line = entry["place"].rsplit(":", 1)
        stored = json.loads(
            (folder.path / name).read_text(encoding="utf-8", errors="surrogatepass").split("\n")[int(line) - 1]
        )
        assert stored["row"] == entry["row"]
    assert reading.files_read == reading.files == 20
    assert len(reading.prompts) == 16


def test_a_run_without_evaluations_or_samples_still_has_a_report(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "bare", "{broken", {})
    with pytest.raises(DataError, match="no metrics yet"):
        collect(folder)
    folder.write_metrics({"step": 1, "group/count": 2, "reward/total/mean": 0.5})
    page = write_report(arms_of([collect(folder)]), folder.path / "report.html")
    assert "Outcome" in page.read_text(encoding="utf-8")


def test_a_report_into_a_place_that_is_no_folder_is_a_setup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be written"):
        write_report(arms_of([collect(make_run(tmp_path, "a", steps=1))]), tmp_path / "file" / "report.html")


def test_recipes_are_compared_by_dotted_key() -> None:
    assert flat_recipe("a: {b: 1, c: {}}\nd: [1]\n") == {"a.b": 1, "a.c": {}, "d": [1]}
    assert flat_recipe("{broken") == {}


def grpo(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-m", "grpo_cli", *args],
        cwd=cwd,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_the_command_prints_where_the_page_is(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "a", steps=2)
    done = grpo("report", "last", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs/a/report.html\n", "")
    assert (tmp_path / "runs/a/report.html").stat().st_size < 1_000_000


def test_several_runs_need_a_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / "runs", name, steps=1)
    done = grpo("report", "a", "b", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --out: several runs need a place for their common report\n\nhint: --out report.html\n"
