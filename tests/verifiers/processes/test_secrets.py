"""Workers see no environment variable with a secret but those that they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_verifiers import build
from grpo_verifiers.processes.pool import without_secrets

SECRET = ["HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PGPASSWORD", "apikey"]  # fmt: skip
PLAIN = ["PATH", "HOME", "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES", "KEYBOARD", "MONKEY", "PYTHONPATH"]


def test_which_names_are_secrets() -> None:
    environment = dict.fromkeys([*SECRET, *PLAIN], "x")
    assert sorted(without_secrets(environment, [])) == sorted(PLAIN)
    assert set(without_secrets(environment, ["HF_TOKEN"])) == {*PLAIN, "HF_TOKEN"}


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
