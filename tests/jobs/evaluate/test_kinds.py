"""`grpo eval` says success by kind of row, and how long right and wrong episodes were."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.environments.worlds.keydoor import rows
from grpo_cli.errors import UsageError
from grpo_cli.jobs.evaluate import as_object, by_kind, columns_of, lines_of, measure_model, table
from grpo_cli.measure.evaluation import Evaluation, MeasuredSamples, measure
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.model_source import ModelSource
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import error, right, wrong
from tests.builders.workplaces import Told, tiny_recipe

VERDICTS = {"+": right(), "-": wrong(), "?": error("timeout")}


def samples(row: str, signs: str, turns: tuple[int, ...] = (), **fields: Any) -> list[SampleRecord]:
    """One sample a sign, of as many turns as `turns` says."""
    played = turns or (0,) * len(signs)
    return [
        SampleRecord(
            0, row, row, "Q", "x", fields, {"environment": VERDICTS[sign]}, VERDICTS[sign].outcome,
            VERDICTS[sign].score, turns=[{"text": "n", "valid": True}] * n,
        )
        for sign, n in zip(signs, played, strict=True)
    ]  # fmt: skip


def measured(*records: list[SampleRecord], each: int = 2) -> MeasuredSamples:
    return measure([one for group in records for one in group], each, [1], 1.0)


def test_turns_of_right_and_wrong_episodes_are_told_apart() -> None:
    found = measured(samples("a", "+-", (2, 8)), samples("b", "+?", (4, 9)))
    assert (found.episodes["turns/right"], found.episodes["turns/wrong"]) == (3.0, 8.0)
    none = measured(samples("a", "--", (2, 4)))
    assert (none.episodes["turns/right"], none.episodes["turns/wrong"]) == (None, 3.0)
    assert "right —   wrong 3.00" in "\n".join(table(Evaluation(none, None), None))
    assert measured(samples("a", "+-")).episodes == {}
    assert Evaluation(found, None).as_metrics()["eval/turns/right"] == 3.0


def test_kinds_are_the_pass_rates_of_their_rows() -> None:
    found = measured(
        samples("a", "++", (2, 2), kind="easy"),
        samples("b", "+-", (4, 6), kind="easy"),
        samples("c", "-?", (8, 8), kind="hard"),
        samples("d", "??", (8, 8)),
    )
    kinds = by_kind(found, [])["kind"]
    assert list(kinds) == ["easy", "hard", "—"]
    easy, hard, none = kinds.values()
    assert (easy.pass_1.mean, easy.pass_1.n, easy.rows) == (0.75, 2, 2)
    assert (easy.turns["turns/right"], easy.turns["turns/wrong"]) == (8 / 3, 6.0)
    assert (hard.pass_1.mean, hard.without_verdict) == (0.0, 1)
    assert math.isnan(none.pass_1.mean) and (none.rows, none.without_verdict) == (1, 2)
    said = as_object("x", Evaluation(found, None), None, None, None, {"kind": kinds})["by"]["kind"]
    assert said["easy"]["mean"] == 0.75 and said["easy"]["turns/wrong"] == 6.0
    lines = lines_of({"kind": kinds})
    assert lines[1] == "by `kind`"
    assert lines[2].startswith("  easy  0.750 [")
    assert lines[2].endswith("n 2   turns right 2.67 wrong 6.00")
    assert lines[4] == "  —     —   n 0   turns right — wrong —   without verdict 2"


def test_single_samples_have_the_interval_of_a_share() -> None:
    found = measured(*(samples(str(i), "+-"[i % 2], kind="a") for i in range(8)), each=1)
    assert by_kind(found, ["kind"])["kind"]["a"].pass_1 == found.pass_1


def test_only_few_kinds_are_shown_unasked_and_numbers_stand_by_size() -> None:
    many = [{"kind": i, "difficulty": "one", "level": i % 3} for i in range(13)]
    assert columns_of(many, []) == []
    assert columns_of(many[:12], []) == ["kind"]
    assert columns_of(many, ["level", "kind", "level"]) == ["level", "kind"]
    found = measured(*(samples(str(i), "+", level=level) for i, level in enumerate((10, 9.0, 9, "x", "nan"))), each=1)
    assert list(by_kind(found, ["level"])["level"]) == ["9", "10", "nan", "x"]
    with pytest.raises(UsageError, match="no held-out row has a column `levels`") as refused:
        columns_of(many, ["levels"])
    assert refused.value.hint == "they have difficulty, kind, level"


def test_many_kinds_are_cut_on_screen_and_hostile_names_shown() -> None:
    found = measured(*(samples(str(i), "+", level=f"\x1b[2J{i:02d}") for i in range(25)), each=1)
    lines = lines_of(by_kind(found, ["level"]))
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "  … 5 more, in `--json`" and len(lines) == 23


def keydoor(folder: Path) -> Recipe:
    """Four small layouts, of which every other one calls itself near."""
    drawn = list(islice(rows("test", grid=3), 4))
    held_out = [row | {"kind": ("near", "far")[i % 2]} for i, row in enumerate(drawn)]
    world = {"python": "environments:keydoor", "workers": 1, "max_turns": 3, "turn_tokens": 2}
    return tiny_recipe(
        folder, drawn, held_out, verify={}, environment=world, sample={"max_tokens": 60}, eval={"greedy": False}
    )


def test_real_episodes_are_grouped_and_a_missing_column_is_refused(tmp_path: Path) -> None:
    place = ModelSource("builtin:tiny", keydoor(tmp_path), tmp_path, None)
    found = measure_model(place, Told().display, seed=0)
    kinds = by_kind(found.sampled, [])["kind"]
    assert {value: kind.rows for value, kind in kinds.items()} == {"far": 2, "near": 2}
    assert found.sampled.episodes["turns/wrong"] == 3.0
    with pytest.raises(UsageError, match="no held-out row has a column `level`"):
        measure_model(place, Told().display, seed=0, by=["level"])
