"""`grpo verify` as a user runs it: lines, exit codes, pipes, bad input."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from grpo_cli.app import main

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'verifiers'}", "NO_COLOR": "1"}
COMMAND = [sys.executable, "-m", "grpo_cli", "verify"]
NUMBER = ["--regex", r"is (?P<answer>\d+)", "--option", "match=answer_group"]


def run(*args: str, stdin: str | bytes | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`grpo verify ARGS` in this process, which spares half a second of imports; pipes and signals use real ones."""
    data = stdin.encode() if isinstance(stdin, str) else stdin or b""
    streams = {"stdin": io.BytesIO(data), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
    with contextlib.ExitStack() as stack:
        for name, stream in streams.items():
            text = io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
            stack.callback(text.detach)
            stack.enter_context(mock.patch.object(sys, name, text))
        stack.enter_context(mock.patch.object(sys, "argv", ["grpo", "verify", *args]))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = (streams[name].getvalue().decode() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(args, code, out, err)


def line(completion: Any, answer: Any = "4", **more: Any) -> str:
    return json.dumps({"completion": completion, "answer": answer, **more}) + "\n"


def outcomes(text: str) -> list[Any]:
    return [json.loads(one)["outcome"] for one in text.splitlines()]


def test_explain_adds_both_readings_and_the_rules_and_changes_nothing_else() -> None:
    lines = line("\\boxed{5}", "5") + line("\\boxed{x > 3}", "(3,\\infty)") + line("none")
    plain, told = (run("-", "--math", *flag, "-q", stdin=lines) for flag in ((), ("--explain",)))
    assert told.returncode == 0
    for one, other in zip(plain.stdout.splitlines(), told.stdout.splitlines(), strict=True):
        verdict, explained = json.loads(one)["verdicts"]["math"], json.loads(other)["verdicts"]["math"]
        assert "explained" not in verdict
        said = explained.pop("explained")
        assert {**verdict, "seconds": 0} == {**explained, "seconds": 0}
        assert said["rules"][0] == verdict["reason"]
    assert (said["gold"], said["answer"]) == ("4", "")


def test_a_line_comes_back_with_verdicts_outcome_and_reward() -> None:
    got = run("-", *NUMBER, stdin='{"n": 1e400, "id":7,"completion": "is 4", "answer": 4}\n')
    assert got.returncode == 0
    assert got.stdout.startswith('{"n": 1e400, "id":7,"completion": "is 4", "answer": 4, "verdicts": {"regex"')
    scored = json.loads(got.stdout)
    assert scored["outcome"] == "right" and scored["reward"] == 1.0
    assert set(scored["verdicts"]["regex"]) == {"outcome", "score", "extracted", "reason", "seconds"}


def test_a_scored_line_can_be_scored_again() -> None:
    once = run("-", *NUMBER, stdin=line("is 5")).stdout
    twice = run("-", "--regex", "is", stdin=once)
    assert outcomes(twice.stdout) == ["right"] and twice.stdout.count('"outcome"') == 2


def test_input_order_is_kept_over_processes() -> None:
    text = "".join(line(f"is {i % 9}", "4", id=i // 8, n=i) for i in range(4000))
    got = run("-", *NUMBER, "--jobs", "2", stdin=text)
    assert [json.loads(one)["n"] for one in got.stdout.splitlines()] == list(range(4000))


def test_processes_and_one_process_say_the_same() -> None:
    text = "".join(line(f"is {i % 9}", "4", id=i // 8) for i in range(3000))
    one, two = (json.loads(run("-", *NUMBER, "--json", "-j", jobs, stdin=text).stdout) for jobs in "12")
    for key in ("seconds", "lines_per_s"):
        del one[key], two[key]
    assert one == two


@pytest.mark.parametrize("key", ["response", "completion", "output", "generation", "text"])
def test_common_names_of_the_completion_are_found(key: str) -> None:
    got = run("-", *NUMBER, stdin=json.dumps({key: "is 4", "gold": "4"}))
    assert outcomes(got.stdout) == ["right"] and f"completion `{key}`, answer `gold`" in got.stderr


@pytest.mark.parametrize("key", ["answer", "gold", "solution", "target"])
def test_common_names_of_the_answer_are_found(key: str) -> None:
    assert outcomes(run("-", *NUMBER, stdin=json.dumps({"text": "is 4", key: "4"})).stdout) == ["right"]


def test_keys_can_be_named_and_may_be_paths() -> None:
    text = json.dumps({"a": "is 4", "reward_model": {"ground_truth": "4"}, "answer": "5", "g": 1})
    args = ["--completion-key", "a", "--answer-key", "reward_model.ground_truth", "--group-key", "g"]
    assert outcomes(run("-", *NUMBER, *args, stdin=text).stdout) == ["right"]


def test_a_line_may_hold_all_completions_of_a_prompt() -> None:
    got = run("-", *NUMBER, stdin=json.dumps({"completions": ["is 4", "is 5"], "answer": "4"}))
    scored = json.loads(got.stdout)
    assert scored["outcome"] == ["right", "wrong"] and scored["reward"] == [1.0, 0.0]
    assert len(scored["verdicts"]) == 2 and "1 of 2" in got.stderr


def test_chat_shaped_completions_are_read() -> None:
    got = run("-", *NUMBER, stdin=line([{"role": "assistant", "content": "is 4"}]))
    assert outcomes(got.stdout) == ["right"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"group": 1, "id": 5, "prompt": "p"}], "group by `group`"),
        ([{"id": 5, "prompt": "p"}], "group by row id `id`"),
        ([{"prompt": "p"}], "group by hash of `prompt`"),
        ([{}], "group by nothing"),
    ],
)
def test_the_command_says_how_lines_are_grouped(lines: list[dict[str, Any]], says: str) -> None:
    assert says in run("-", *NUMBER, stdin="".join(line("is 4", **one) for one in lines)).stderr


def test_the_summary_object_counts_groups() -> None:
    rows = [("a", "is 4"), ("a", "is 4"), ("b", "is 4"), ("b", "is 5"), ("c", "is 5"), ("c", "none")]
    got = run("-", *NUMBER, "--json", stdin="".join(line(text, id=name) for name, text in rows))
    found = json.loads(got.stdout)
    assert found["schema"] == 1 and found["n"] == 6
    assert found["outcomes"] == {"right": 3, "wrong": 2, "no_answer": 1, "over_limit": 0, "error": 0}
    assert found["mean_score"] == 0.5
    groups = found["groups"]
    assert [groups[key] for key in ("n", "all_wrong", "mixed", "all_right", "with_signal")] == [3, 1, 1, 1, 1]
    assert groups["pass@k"] == {"1": 0.5, "2": pytest.approx(2 / 3)}
    assert groups["predicted_dead"]["2"] == pytest.approx(2 / 3)


def test_json_leaves_stdout_to_the_object_and_lines_to_out(tmp_path: Path) -> None:
    out = tmp_path / "scored.jsonl"
    got = run("-", *NUMBER, "--json", "--out", str(out), stdin=line("is 4"))
    assert json.loads(got.stdout)["n"] == 1 and outcomes(out.read_text()) == ["right"]


def test_files_gzip_and_several_files_are_read(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_text(line("is 4"))
    packed.write_bytes(gzip.compress(line("is 5").encode()))
    assert outcomes(run(str(plain), str(packed), *NUMBER).stdout) == ["right", "wrong"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"{not json}", "not JSON: "),
        (b"[1]", "not a JSON object"),
        (b'{"completion": 3, "answer": "4"}', "`completion` is a number, not text"),
        (b'{"completion": null, "answer": "4"}', "no field `completion`"),
        (b'{"answer": "4"}', "no field `completion`"),
        (b'{"completion": "is 4"}', "verifier `regex`: no column `answer`"),
        (b'{"completion": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "not JSON: nested too deep"),
        (b'{"completion": ' + b"1" * 5000 + b"}", "not JSON: a number too long"),
    ],
)
def test_a_bad_line_is_reported_with_its_number_and_the_rest_goes_on(bad: bytes, says: str) -> None:
    good = line("is 4").encode()
    got = run("-", *NUMBER, stdin=good + b"\n" + bad + b"\n" + good)
    assert got.returncode == 3
    assert f"error: <stdin>:3: {says}" in got.stderr and "Traceback" not in got.stderr
    assert outcomes(got.stdout) == ["right", "right"]


def test_lone_surrogates_pass_through() -> None:
    got = run(
        "-", "--regex", "(.)$", "--option", "match=answer_group", stdin='{"completion": "\\ud800", "answer": "\\ud800"}'
    )
    assert outcomes(got.stdout) == ["right"]


@pytest.mark.parametrize(
    ("args", "stdin", "code", "says"),
    [
        (["-"], line("x"), 2, "no verifier"),
        (["-", "--regex", "a(b"], line("x"), 2, "is no regular expression: missing"),
        (["-", "--verifier", "mth"], line("x"), 2, "did you mean `math`"),
        (["-", "--regex", "a", "--option", "flag=i"], line("x"), 2, "did you mean `flags`"),
        (["-", "--regex", "a", "--option", "timeout_s=soon"], line("x"), 2, "must be a number, got `soon`"),
        (["-", "--regex", "a", "--option", "match=some"], line("x"), 2, "must be one of search, full, answer_group"),
        (["-", "--regex", "a", "--regex", "b", "--option", "flags=i"], line("x"), 2, "say for which verifier"),
        (["-", "--regex", "a", "--weight", "regex=0"], line("x"), 2, "all weights are 0"),
        (["-", "--regex", "a", "--primary", "math"], line("x"), 2, "none of the verifiers regex"),
        (["-", "--regex", "a", "--recipe", "x"], line("x"), 2, "leave one of them out"),
        (["missing.jsonl", "--regex", "a"], "", 3, "missing.jsonl: no such file"),
        ([".", "--regex", "a"], "", 3, "is a folder"),
        (["-", "--regex", "a"], "", 3, "<stdin>: is empty"),
        (["-", "--regex", "a"], '{"foo": 1}', 3, "no completion in the line (its keys: `foo`)"),
        (["-", "--regex", "a", "--out", "/nowhere/x"], line("x"), 4, "cannot be written: no such file"),
    ],
)
def test_a_mistake_gives_one_message_and_its_exit_code(args: list[str], stdin: str, code: int, says: str) -> None:
    got = run(*args, stdin=stdin)
    assert got.returncode == code
    assert says in got.stderr and "Traceback" not in got.stderr and got.stdout == ""


def test_the_output_may_not_be_the_input(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(line("is 4"))
    got = run(str(file), *NUMBER, "--out", str(file))
    assert got.returncode == 2 and file.read_text() == line("is 4")


def test_fail_under_makes_exit_code_1() -> None:
    text = line("is 4") + line("is 5")
    assert run("-", *NUMBER, "--fail-under", "0.5", stdin=text).returncode == 0
    got = run("-", *NUMBER, "--fail-under", "0.51", stdin=text)
    assert got.returncode == 1 and "mean score 0.5000 is below 0.51" in got.stderr


def test_bad_lines_outrank_a_missed_bar() -> None:
    assert run("-", *NUMBER, "--fail-under", "1", stdin=line("is 5") + "{\n").returncode == 3


def test_stdin_that_is_a_terminal_is_a_usage_error() -> None:
    leader, follower = pty.openpty()
    got = subprocess.run(
        [*COMMAND, "-", "--regex", "a"], stdin=follower, capture_output=True, env=ENV, timeout=30, check=False
    )
    os.close(leader)
    os.close(follower)
    assert got.returncode == 2 and b"stdin is a terminal" in got.stderr


def test_a_closed_pipe_is_silent(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(line("is 4 " + "x" * 1000) * 2000)
    shell = f"'{sys.executable}' -m grpo_cli verify {file} --regex is -q | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    got = subprocess.run(["bash", "-c", shell], capture_output=True, env=ENV, text=True, timeout=60, check=False)
    assert got.stdout == "0\n" and got.stderr == ""


def test_stream_answers_each_line_before_the_next_is_sent() -> None:
    process = subprocess.Popen(
        [*COMMAND, "-", *NUMBER, "--stream"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENV,
    )
    assert process.stdin is not None and process.stdout is not None
    answers = []
    for text in ("{oops\n", line("is 4"), "{oops\n", line("is 5")):
        process.stdin.write(text.encode())
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 20)[0]
        answers.append(json.loads(process.stdout.readline()))
    process.stdin.close()
    assert process.wait(20) == 3
    process.stdout.close()
    assert [a.get("outcome") for a in answers] == [None, "right", None, "wrong"]
    assert answers[2]["line"] == 3 and "not JSON" in answers[2]["error"]


def test_a_users_function_scores_lines(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(completion, answer):\n    return completion == answer\n")
    got = run("-", "--verifier", "python", "--option", "function=mine:f", stdin=line("4") + line("5"), cwd=tmp_path)
    assert got.returncode == 0 and outcomes(got.stdout) == ["right", "wrong"]


def test_a_function_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    got = run("-", "--verifier", "python", "--option", "function=mine:f", stdin=line("4"), cwd=tmp_path)
    assert got.returncode == 2 and "No module named 'mine'" in got.stderr and "Traceback" not in got.stderr


def test_weights_and_primary_make_the_reward() -> None:
    args = [*NUMBER, "--regex", "^The", "--weight", "regex2=0.1", "--option", "regex2.flags=i"]
    args[args.index("--option") + 1] = "regex.match=answer_group"
    got = json.loads(run("-", *args, stdin=line("the sum is 4")).stdout)
    assert got["reward"] == pytest.approx(1.1) and got["outcome"] == "right"


def test_a_recipe_names_the_verifiers(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(completion, answer):\n    return 0.5\n")
    (tmp_path / "r.yaml").write_text(
        "grpo: 1\nmodel: x\ndata: {train: a.jsonl, prompt: '{q}'}\n"
        "verify:\n  half: {kind: python, function: 'mine:f', right_at: 0.5}\n  form: {kind: regex, weight: 0.1, pattern: is}\n"
        "sample: {prompts: 1, group: 2}\ntrain: {steps: 1, lr: 1e-6}\n"
    )
    got = run("-", "--recipe", str(tmp_path / "r.yaml"), stdin=line("is 4"))
    assert got.returncode == 0, got.stderr
    scored = json.loads(got.stdout)
    assert scored["reward"] == pytest.approx(0.6) and scored["outcome"] == "right"


def test_no_heavy_module_is_imported() -> None:
    code = (
        "import sys, runpy\nsys.argv = ['grpo', 'verify', '-', '--regex', 'a', '-q']\n"
        "try:\n    runpy.run_module('grpo_cli', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'sympy', 'scipy', 'numpy', 'rich.live'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    got = subprocess.run(
        [sys.executable, "-c", code], input=line("a").encode(), capture_output=True, env=ENV, timeout=60, check=False
    )
    assert got.stderr.decode().splitlines()[-1] == "[]", got.stderr


RECIPE = (
    "grpo: 1\nmodel: x\ndata: {{train: a.jsonl, prompt: '{{q}}'}}\nsample: {{prompts: 1, group: 2, max_tokens: 100}}\n"
    "train: {{steps: 1, lr: 1e-6}}\n{0}\n"
)


def test_shaping_and_gate_of_a_recipe_make_the_reward(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        RECIPE.format(
            "verify:\n  digit: {kind: regex, pattern: 'is (\\d)', match: answer_group}\n  form: {kind: regex, pattern: it}\n"
            "combine: {gate: {form: needs_right}}\nshaping: {overlong: {weight: 0.5, cache: 0.5}}"
        )
    )
    text = line("it is 4", tokens=75) + line("it is 5", tokens=100) + line("it is 4")
    got = [json.loads(one) for one in run("-", "--recipe", str(recipe), stdin=text).stdout.splitlines()]
    assert [one["reward"] for one in got] == [1.75, -0.5, 2.0]
    assert got[0]["shaping"] == {"overlong": -0.25}


@pytest.mark.parametrize(
    ("train", "with_signal", "word"),
    [("", 1, "outcomes"), ("train.alive_by=reward", 2, "rewards"), ("train.alive_by=[digit, form]", 2, "outcomes")],
)
def test_groups_are_dead_by_what_training_would_learn(tmp_path: Path, train: str, with_signal: int, word: str) -> None:
    recipe = tmp_path / "r.yaml"
    steps = "alive_by: " + train.partition("=")[2] + ", " if train else ""
    recipe.write_text(
        RECIPE.format(
            "verify:\n  digit: {kind: regex, pattern: 'is (\\d)', match: answer_group}\n"
            "  form: {kind: regex, pattern: it, weight: 0.1}"
        ).replace("train: {", "train: {" + steps)
    )
    # one group told apart by the answer, one by its form alone, one not at all
    text = "".join(
        line(said, group=group)
        for group, pair in enumerate((("it is 4", "it is 5"), ("it is 5", "is 5"), ("is 5", "is 5")))
        for said in pair
    )
    got = run("-", "--recipe", str(recipe), "--json", "--out", str(tmp_path / "out"), stdin=text)
    assert json.loads(got.stdout)["groups"]["with_signal"] == with_signal
    assert f"{3 - with_signal} of 3 groups have equal {word}: no gradient" in got.stderr


def test_a_mixed_file_is_judged_by_the_verifier_each_row_names(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(RECIPE.format("verify: {numeric: {}, choice: {}, json: {}}\ncombine: {by: kind}"))
    rows = [
        line("\\boxed{4}", 4, kind="numeric"),
        line("\\boxed{B}", "B", kind="choice", choices=["x", "y"]),
        line('{"a": 1}', {"a": 2}, kind="json"),
        line("x", "B", kind="chioce"),
    ]
    got = run("-", "--recipe", str(recipe), stdin="".join(rows))
    assert (
        got.returncode == 3 and "`kind` is 'chioce', which is none of the verifiers numeric, choice, json" in got.stderr
    )
    scored = [json.loads(one) for one in got.stdout.splitlines()]
    assert [one["outcome"] for one in scored] == ["right", "right", "wrong"]
    assert [list(one["verdicts"]) for one in scored] == [["numeric"], ["choice"], ["json"]]


def test_verifiers_that_take_back_what_the_other_gives_are_named() -> None:
    args = ["--regex", "long", "--regex", "^(?!.*long)", "--json", "-j", "2"]
    text = "".join(line("long" if i % 2 else "short", id=i // 2) for i in range(3000))
    found = json.loads(run("-", *args, stdin=text).stdout)
    assert found["warnings"] == ["`regex` and `regex2` cancel: where one pays, the other does not (3000 samples)"]


def test_ctrl_c_stops_with_whole_lines_and_a_summary() -> None:
    process = subprocess.Popen(
        [*COMMAND, "-", *NUMBER, "--stream"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENV,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(line("is 4").encode())
    process.stdin.flush()
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, talk = process.stdout.read(), process.stderr.read().decode()
    assert process.wait(20) == 130
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    assert json.loads(first)["outcome"] == "right" and rest == b""
    assert "interrupted after 1 lines" in talk and "Traceback" not in talk
