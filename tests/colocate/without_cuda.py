"""What vLLM and TRL lack on a CPU to keep trained weights and to pass them on; patches of the tests alone.

Everything else is TRL's and vLLM's own: rendezvous, packing, requests, loading.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

Patch = Callable[[Any, str, Any], None]
"""`setattr`, or one that is taken back after the test."""


class GlooCommunicator:
    """`PyNcclCommunicator` as far as weights need it, over gloo.

    Args:
        group: vLLM's process group, which has met already.
        device: ignored; there is the CPU only.
    """

    def __init__(self, group: Any, device: Any) -> None:
        self.group, self.rank, self.world_size = group, group.rank, group.world_size
        store = torch.distributed.PrefixStore("weights", group.store)
        self.gloo = torch.distributed.ProcessGroupGloo(store, group.rank, group.world_size, timedelta(seconds=60))

    def broadcast(self, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
        """Fill `tensor` with that of rank `src`, in place."""
        options = torch.distributed.BroadcastOptions()
        options.rootRank = src
        self.gloo.broadcast([tensor], options).wait()


class NoStream:
    """What is put on it is done at once."""

    def synchronize(self) -> None:
        """Nothing is in flight."""


def keep_plain_weights(patch: Patch) -> None:
    """vLLM's linear layers multiply by the weight that `load_weights` writes.

    On a CPU it packs them and throws the plain weights away, so new ones cannot be written into them; on a GPU it keeps them.
    """
    importlib.import_module("vllm.model_executor.layers.utils")

    def keep(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    for name, module in list(sys.modules.items()):
        if name.startswith("vllm") and hasattr(module, "dispatch_cpu_unquantized_gemm"):
            patch(module, "dispatch_cpu_unquantized_gemm", keep)


def send_over_gloo(patch: Patch) -> None:
    """Weights pass between processes over gloo in NCCL's place, and without CUDA's streams."""
    packed = importlib.import_module("vllm.distributed.weight_transfer.packed_tensor")
    pynccl = importlib.import_module("vllm.distributed.device_communicators.pynccl")
    patch(pynccl, "PyNcclCommunicator", GlooCommunicator)
    patch(packed, "_get_streams", lambda device, buffers: [NoStream()] * buffers)
    patch(torch.cuda, "stream", lambda stream: torch.cuda.StreamContext(None))
    patch(torch.accelerator, "current_device_index", lambda: 0)
