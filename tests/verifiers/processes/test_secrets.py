"""Workers see no environment variable with a secret but those that they are given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpo_verifiers import build
from grpo_verifiers.processes.pool import Done, Pool, ProcessLimits, without_secrets

SECRET = ["HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PGPASSWORD", "apikey", "GH_PAT", "MYSQL_PWD", "SLACK_WEBHOOK"]  # fmt: skip
PLAIN = [
    "PATH",
    "HOME",
    "TOKENIZERS_PARALLELISM",
    "CUDA_VISIBLE_DEVICES",
    "KEYBOARD",
    "MONKEY",
    "PYTHONPATH",
    "PWD",
    "OLDPWD",
]


def test_which_names_are_secrets() -> None:
    environment = dict.fromkeys([*SECRET, *PLAIN], "x")
    assert sorted(without_secrets(environment, [])) == sorted(PLAIN)
    assert set(without_secrets(environment, ["HF_TOKEN"])) == {*PLAIN, "HF_TOKEN"}


def test_an_address_with_a_password_is_a_secret_but_a_proxys() -> None:
    signed = "postgres://me:pw@host:5432/rows"
    environment = {"DATABASE_URL": signed, "HTTPS_PROXY": signed, "BASE_URL": "http://host:5432/v1@2"}
    assert sorted(without_secrets(environment, [])) == ["BASE_URL", "HTTPS_PROXY"]


def test_a_worker_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may hold `.`
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if entry]
    )  # as where `grpo` is started, not `python -m`
    for name in ("json", "re", "pathlib", "grpo_verifiers"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w').close()\nraise SystemExit(3)\n")
    pool = Pool("pool_tasks:make", {}, workers=1, limits=ProcessLimits(), path=[str(Path(__file__).parent)])
    assert [done.value for done in pool.run([1]) if isinstance(done, Done)] == [1]
    pool.close()
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize(("env", "score"), [([], 0.0), (["MY_API_KEY"], 1.0), (["OTHER_KEY"], 0.0)])
def test_a_reward_reads_the_secrets_that_it_is_given(
    env: list[str], score: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "s3cret")
    (tmp_path / "r.py").write_text(
        "import os\ndef f(completion):\n    return float(os.environ.get('MY_API_KEY') == 's3cret')\n"
    )
    verifier = build("python", function=f"{tmp_path}/r.py:f", env=env)
    try:
        assert verifier.verify("text", {}).score == score
    finally:
        verifier.close()
