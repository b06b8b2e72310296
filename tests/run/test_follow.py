"""Reading a file that another process writes."""

from __future__ import annotations

import json
from pathlib import Path

from grpo_cli.run.follow import FileTail


def test_a_line_ends_at_its_newline_only(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    row = {"reason": "a\u2028b\x85c\x1dd"}
    file.write_text(json.dumps(row, ensure_ascii=False) + "\n" + '{"half')
    tail = FileTail(file)
    lines, restarted = tail.read()
    assert [json.loads(line) for line in lines] == [row] and not restarted
    with file.open("a") as more:
        more.write(': 1"}\n')
    assert tail.read() == (['{"half: 1"}'], False)
    assert tail.read() == ([], False)
