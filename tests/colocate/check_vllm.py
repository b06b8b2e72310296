"""Two colocate steps through vLLM on a CPU (`make test-vllm`): its log-probs must be the trained model's after each update."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from vllm_runs import ENVIRONMENT, apart_while, run_job
from without_cuda import keep_plain_weights

os.environ |= ENVIRONMENT


def test_samples_come_from_the_weights_that_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_plain_weights(lambda *what: monkeypatch.setattr(*what))
    apart = apart_while(monkeypatch)
    started = {"mode": "colocate", "max_model_length": 256, "gpu_memory_utilization": 0.1}
    assert run_job(tmp_path, started).steps == 2
    apart.check(0.02)  # vLLM takes half precision
