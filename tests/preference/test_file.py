"""Files of pairs read back: which row a pair answers, and every line and file that no pair can be learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError
from grpo_cli.preference.file import FilePair, pairs_of_rows, read_pair_lines
from grpo_cli.recipe.sections.recipe import Source

ROWS = [Row("a", "ask a", None, {}), Row("b", "ask b", None, {}), Row("c", "ask b", None, {})]
HELD_OUT = [Row("h", "Ask H ", None, {}, "eval.jsonl:1")]


def pair(prompt: str = "ask a", chosen: str = "1", rejected: str = "2", **more: Any) -> dict[str, Any]:
    return {"row": "a", "prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def read(folder: Path, *lines: object, name: str = "pairs.jsonl", **options: Any) -> list[FilePair]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / name).write_text(text)
    source = Source.model_validate({"from": name, **options})
    return pairs_of_rows(read_pair_lines(source, folder), ROWS, HELD_OUT)


def test_a_pair_belongs_to_the_row_of_its_prompt_and_among_equal_prompts_to_that_of_its_id(tmp_path: Path) -> None:
    lines = [pair(), pair("ask b", "1", "3", row="c"), pair("ask b", "4", "5", row="gone"), pair("ask b", row=None)]
    assert read(tmp_path, *lines) == [
        FilePair(0, "1", "2"), FilePair(2, "1", "3"), FilePair(1, "4", "5"), FilePair(1, "1", "2"),
    ]  # fmt: skip
    assert read(tmp_path, *lines, skip=1, limit=1) == [FilePair(2, "1", "3")]


@pytest.mark.parametrize(
    ("lines", "place", "said"),
    [
        ([], "prefer.data", "`pairs.jsonl` is empty"),
        (["", "  "], "prefer.data", "`pairs.jsonl` is empty"),
        ([pair(), "{"], "pairs.jsonl:2", "broken JSON"),
        ([pair(), '["a", "b"]'], "pairs.jsonl:2", "expected an object"),
        (["[1]"], "pairs.jsonl:item 1", "expected an object"),
        ([pair(), {"row": "a", "prompt": "ask a", "chosen": "1"}], "pairs.jsonl:2", "no pair: no `rejected`"),
        ([pair(rejected=None)], "pairs.jsonl:1", "no pair: `rejected` must be text"),
        ([pair(chosen=[{"role": "assistant", "content": "1"}])], "pairs.jsonl:1", "`chosen` must be text"),
        ([pair(prompt=3)], "pairs.jsonl:1", "no pair: `prompt` must be text"),
        ([pair(rejected="1")], "pairs.jsonl:1", "`chosen` and `rejected` are the same text"),
        ([{"prompt": "ask a", "completion": "1", "label": True}], "pairs.jsonl:1", "`grpo pairs --unpaired`"),
        ([{"prompt": "ask a", "completion": "1", "outcome": "right"}], "pairs.jsonl:1", "no pair: no `chosen`"),
        ([pair(), pair(chosen="2", rejected="3")], "pairs.jsonl:2", "a winner of this line is a loser in pairs.jsonl:1"),
        ([pair(), pair(chosen="4", rejected="1")], "pairs.jsonl:2", "a loser of this line is a winner in pairs.jsonl:1"),
        ([pair(), pair("ask h")], "pairs.jsonl:2", "1 of 2 pairs are of held-out rows, first row `h` (eval.jsonl:1)"),
        ([pair(), pair("ask z", row="z")], "pairs.jsonl:2", "1 of 2 pairs are of rows that the recipe does not train on"),
        ([pair("ask otherwise")], "pairs.jsonl:1", "pairs of another recipe"),
    ],
)  # fmt: skip
def test_what_is_no_pair_of_these_rows_is_refused_with_its_place(
    tmp_path: Path, lines: list[object], place: str, said: str
) -> None:
    with pytest.raises(DataError) as refused:
        read(tmp_path, *lines)
    (mistake,) = refused.value.mistakes
    assert mistake.place == place and said in mistake.message and int(refused.value.code) == 3


def test_all_bad_lines_of_a_file_are_said_at_once_and_a_missing_file_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read(tmp_path, pair(rejected=1), pair(), pair(chosen="5", rejected="5"))
    assert [one.place for one in refused.value.mistakes] == ["pairs.jsonl:1", "pairs.jsonl:3"]
    assert "grpo pairs" in (refused.value.hint or "")
    with pytest.raises(DataError, match=r"no file `pair\.jsonl`; did you mean `pairs\.jsonl`"):
        read_pair_lines(Source.model_validate({"from": "pair.jsonl"}), tmp_path)
