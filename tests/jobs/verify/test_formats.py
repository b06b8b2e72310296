"""`grpo verify` on what other programs write, each as its program writes it."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_verify import run

RIGHT, WRONG = "so \\boxed{5}", "so \\boxed{6}"


def summary(path: Path, *more: str) -> dict[str, Any]:
    done = run(str(path), "--math", "--json", *more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outcomes(path: Path, *more: str) -> dict[str, int]:
    counted = summary(path, *more)["outcomes"]
    return {name: n for name, n in counted.items() if n}


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


TWO = [{"prompt": "2+3?", "completion": RIGHT, "answer": "5"}, {"prompt": "2+3?", "completion": WRONG, "answer": "5"}]
BOTH = {"right": 1, "wrong": 1}


def test_csv(tmp_path: Path) -> None:
    with (tmp_path / "c.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(TWO[0]))
        writer.writeheader()
        writer.writerows(TWO)
    assert outcomes(tmp_path / "c.csv") == BOTH


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["c.json", "c.jsonl"])
def test_json_arrays(tmp_path: Path, indent: int | None, name: str) -> None:
    (tmp_path / name).write_text(json.dumps(TWO, indent=indent))
    assert outcomes(tmp_path / name) == BOTH


def test_parquet_with_chats_as_trl_logs_them(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    logged = [
        {"step": 1, "prompt": [{"role": "user", "content": "2+3?"}], "completion": [{"role": "assistant", "content": said}],
         "reward_fn": 1.0, "advantage": 0.5}
        for said in (RIGHT, WRONG)
    ]  # fmt: skip
    file = tmp_path / "completions_00001.parquet"
    parquet.write_table(arrow.Table.from_pylist(logged), file)
    rows = lines(tmp_path / "rows.jsonl", [{"question": "2+3?", "answer": "5"}])
    assert outcomes(file, "--rows", str(rows)) == BOTH


def test_a_parquet_file_of_answers(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.Table.from_pylist(TWO), tmp_path / "c.parquet")
    assert outcomes(tmp_path / "c.parquet") == BOTH


@pytest.mark.parametrize(
    "chat",
    [
        {"messages": [{"role": "user", "content": "2+3?"}, {"role": "assistant", "content": RIGHT}]},
        {
            "messages": [
                {"role": "user", "content": "2+3?"},
                {"role": "assistant", "content": [{"type": "text", "text": RIGHT}]},
            ]
        },
        {"conversations": [{"from": "human", "value": "2+3?"}, {"from": "gpt", "value": RIGHT}]},
    ],
)
def test_chats(tmp_path: Path, chat: dict[str, Any]) -> None:
    assert outcomes(lines(tmp_path / "c.jsonl", [{**chat, "answer": "5"}])) == {"right": 1}


def batch(custom_id: str, *said: str) -> dict[str, Any]:
    choices = [{"index": i, "message": {"role": "assistant", "content": text}} for i, text in enumerate(said)]
    body = {"id": "chatcmpl-1", "model": "m", "choices": choices}
    return {
        "id": "batch_req_" + custom_id,
        "custom_id": custom_id,
        "response": {"status_code": 200, "body": body},
        "error": None,
    }


def test_openai_batch_output_is_joined_by_custom_id(tmp_path: Path) -> None:
    file = lines(tmp_path / "out.jsonl", [batch("b", RIGHT), batch("a", RIGHT, WRONG)])
    rows = lines(tmp_path / "rows.jsonl", [{"custom_id": "a", "answer": "5"}, {"id": "b", "answer": "6"}])
    assert outcomes(file, "--rows", str(rows)) == {"right": 1, "wrong": 2}
    done = run(
        str(lines(tmp_path / "more.jsonl", [batch("a", RIGHT), batch("z", RIGHT)])), "--math", "--rows", str(rows)
    )
    assert done.returncode == 3
    assert "no row of" in done.stderr and "`z`" in done.stderr


def test_a_failed_request_says_why(tmp_path: Path) -> None:
    failed = {
        "id": "r",
        "custom_id": "a",
        "response": None,
        "error": {"code": "expired", "message": "too late"},
        "answer": "5",
    }
    done = run(str(lines(tmp_path / "out.jsonl", [{**batch("a", RIGHT), "answer": "5"}, failed])), "--math")
    assert done.returncode == 3
    assert "the request failed: too late" in done.stderr


def test_vllm_outputs_and_completions_of_a_server(tmp_path: Path) -> None:
    offline = {
        "request_id": "0",
        "prompt": "2+3?",
        "outputs": [{"index": 0, "text": RIGHT}, {"index": 1, "text": WRONG}],
        "answer": 5,
    }
    served = {"id": "cmpl-1", "choices": [{"index": 0, "text": RIGHT}, {"index": 1, "text": WRONG}], "answer": 5}
    assert outcomes(lines(tmp_path / "a.jsonl", [offline])) == BOTH
    assert outcomes(lines(tmp_path / "b.jsonl", [served])) == BOTH


def test_lm_eval_samples(tmp_path: Path) -> None:
    sample = {
        "doc_id": 0, "doc": {"question": "2+3?", "answer": "2+3=5 #### 5"}, "target": "2+3=5 #### 5",
        "arguments": [["Q: 2+3?", {"until": ["\n"]}]], "resps": [[RIGHT], [WRONG]], "filtered_resps": ["5", "6"], "exact_match": 1.0,
    }  # fmt: skip
    assert outcomes(lines(tmp_path / "samples_gsm8k.jsonl", [sample])) == BOTH


def inspected(n: int, said: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": said}
    return {
        "id": n, "epoch": 1, "input": "2+3?", "target": ["5", "five"], "messages": [{"role": "user", "content": "2+3?"}, message],
        "output": {"model": "m", "choices": [{"message": message, "stop_reason": "stop"}]}, "scores": {},
    }  # fmt: skip


def test_inspect_logs(tmp_path: Path) -> None:
    log = {
        "version": 2,
        "status": "success",
        "eval": {"task": "t"},
        "samples": [inspected(1, RIGHT), inspected(2, WRONG)],
    }
    for name, indent in (("a.json", 2), ("b.json", None)):
        (tmp_path / name).write_text(json.dumps(log, indent=indent))
        assert outcomes(tmp_path / name) == BOTH
    with zipfile.ZipFile(tmp_path / "c.eval", "w") as archive:
        archive.writestr("header.json", "{}")
        for sample in log["samples"]:  # type: ignore[attr-defined]
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample, indent=2))
    assert outcomes(tmp_path / "c.eval") == BOTH


def test_verl_rollouts(tmp_path: Path) -> None:
    rollouts = [{"input": "2+3?", "output": said, "gts": "5", "score": 0.0, "step": 1} for said in (RIGHT, WRONG)]
    found = summary(lines(tmp_path / "1.jsonl", rollouts))
    assert (found["groups"]["n"], found["n"]) == (1, 2)
    nested = [{"prompt": "2+3?", "response": RIGHT, "reward_model": {"style": "rule", "ground_truth": "5"}}]
    assert outcomes(lines(tmp_path / "n.jsonl", nested)) == {"right": 1}


@pytest.mark.parametrize("key", ["a.0.text", "a[0].text", "a.-1.text"])
def test_paths_take_indexes(tmp_path: Path, key: str) -> None:
    file = lines(tmp_path / "c.jsonl", [{"a": [{"text": RIGHT}], "answer": "5"}])
    assert outcomes(file, "--completion-key", key) == {"right": 1}


def test_a_missing_path_names_the_keys_that_are_there(tmp_path: Path) -> None:
    file = lines(tmp_path / "c.jsonl", [{"a": {"txt": RIGHT}, "answer": "5"}])
    done = run(str(file), "--math", "--completion-key", "a.text")
    assert done.returncode == 3
    assert "no field `a.text`; `a` has `txt`" in done.stderr


@pytest.mark.parametrize(
    ("golds", "flag"),
    [
        (["5", "1/2"], "--math"),
        (["A", "(C)"], "--verifier choice"),
        (["Paris", "Rome"], "--verifier exact"),
        ([{"a": 1}], "--verifier json"),
    ],
)
def test_without_a_verifier_one_is_proposed_from_the_golds(tmp_path: Path, golds: list[Any], flag: str) -> None:
    file = lines(tmp_path / "c.jsonl", [{"completion": "x", "answer": gold} for gold in golds])
    done = run(str(file))
    assert done.returncode == 2
    assert f"`grpo verify {file} {flag}`" in done.stderr.replace("\n", " ")


def test_a_broken_row_of_a_table_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text('completion,answer\n"\\boxed{5}",5\na,b,c\n')
    done = run(str(tmp_path / "c.csv"), "--math")
    assert done.returncode == 3
    assert "3 cells" in done.stderr
