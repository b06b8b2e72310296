"""Every line of `docs/coming-from.md`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import load_rows
from grpo_cli.recipe.checking.other_names import counterpart
from grpo_verifiers import build
from tests.builders.data_builders import Data, Source, write_lines

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "coming-from.md").read_text(encoding="utf-8")
NAMES = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|$", PAGE, re.M)
LAYOUTS = re.findall(r"^\| ([\w ,-]+) \| `(\{.*\})` \| `(\w+)` \|$", PAGE, re.M)
CHAT = [{"role": "user", "content": "2+3?"}]
ROWS: dict[str, dict[str, Any]] = {
    "open-r1 maths": {"problem": "2+3?", "answer": "5", "solution": "so 5", "source": "olympiads"},
    "verl parquet": {"data_source": "gsm8k", "prompt": CHAT, "reward_model": {"style": "rule", "ground_truth": "5"}, "extra_info": {"index": 0}},
    "DAPO-Math": {"data_source": "math_dapo", "prompt": CHAT, "reward_model": {"ground_truth": "5", "style": "rule-lighteval/MATH_v2"}},
    "SYNTHETIC": {"prompt": "2+3?", "task_type": "verifiable_math", "verification_info": '{"ground_truth": "5"}'},
    "Search-R1": {"id": "train_0", "question": "2+3?", "golden_answers": ["5", "five"]},
    "KodCode, APPS, TACO, AceCode": {"question": "2+3?", "solution": "def f(a, b):\n    return a + b\n", "test": "from solution import f\n\ndef test_f():\n    assert f(2, 3) == 5\n",
                "test_info": [{"function_name": "f", "parameter_list": "(a, b)"}]},
    "LeetCodeDataset": {"query": "2+3?", "entry_point": "Solution().f", "starter_code": "class Solution:\n    def f(self, a: int, b: int) -> int:\n        ",
                        "test": "def check(candidate):\n    assert candidate(a=2, b=3) == 5\n", "prompt": "", "completion": "class Solution:\n    def f(self, a, b):\n        return a + b\n"},
    "EvalPlus": {"task_id": "HumanEval/0", "prompt": "2+3?", "entry_point": "f", "canonical_solution": "def f(a, b):\n    return a + b\n",
                 "base_input": [[2, 3]], "plus_input": [[-1, 1]], "atol": 0},
    "DeepCoder": {"problem": "2+3?", "tests": '[{"input": "2\\n3", "output": "5", "testtype": "functional", "metadata": {"func_name": "f"}}]', "metadata": {"func_name": "f"}},
    "SYNTHETIC-1, open-r1 code": {"prompt": "2+3?", "task_type": "verifiable_code", "verification_info": {"language": "python", "test_cases": [
        {"type": "function_call", "fn_name": "f", "input": [2, 3], "output": [5]}]}},
    "open-instruct code": {"messages": CHAT, "dataset": "code", "ground_truth": ["assert f(2, 3) == 5"]},
    "BigCodeBench": {"instruct_prompt": "2+3?", "code_prompt": "def f(a, b):\n", "entry_point": "f", "libs": "[]", "complete_prompt": "def f(a, b):\n", "canonical_solution": "    return a + b\n",
                     "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_sum(self):\n        self.assertEqual(f(2, 3), 5)\n"},
    "NuminaMath": {"source": "amc", "problem": "2+3?", "solution": "2+3 is \\boxed{5}."},
}  # fmt: skip


def test_the_page_has_its_tables() -> None:
    assert len(NAMES) >= 35
    assert sorted(name for name, _, _ in LAYOUTS) == sorted(ROWS)


@pytest.mark.parametrize(("name", "key"), NAMES)
def test_a_name_leads_to_the_key_beside_it(name: str, key: str) -> None:
    assert counterpart(name) == key


@pytest.mark.parametrize(("layout", "data", "kind"), LAYOUTS)
def test_a_row_of_the_layout_becomes_a_prompt_with_its_gold(tmp_path: Path, layout: str, data: str, kind: str) -> None:
    write_lines(tmp_path / "rows.jsonl", [ROWS[layout]])
    said = YAML(typ="safe").load(data.replace("\\|", "|"))
    (row,) = load_rows(Data([Source("rows.jsonl")], **said), "train", tmp_path)
    assert row.prompt == "2+3?"
    verifier = build(kind)
    assert not audit_golds([row], {kind: verifier}).dropped
    right, wrong = "\\boxed{5}", "\\boxed{6}"
    if kind == "code":
        body = (
            "class Solution:\n    def f(self, a, b):\n        return a {} b"
            if "Leet" in layout
            else "def f(a, b):\n    return a {} b"
        )
        right, wrong = (f"```python\n{body.format(sign)}\n```" for sign in "+-")
    assert verifier.verify(right, row.fields).outcome == "right"
    assert verifier.verify(wrong, row.fields).outcome == "wrong"
