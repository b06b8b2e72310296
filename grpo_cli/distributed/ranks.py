"""Several processes in one run: the rank of this process, and the exchanges on which all ranks must agree.

Every rank loads the same rows and chooses the same ones; each samples, judges and trains on its own part of the batch. Rank 0
alone owns the run folder and the display, and decides when the run stops.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from grpo_cli.distributed.network import INTERFACE
from grpo_cli.errors import SetupError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among `world`; without arguments the only one."""

    rank: int = 0
    world: int = 1
    local: int = 0
    machine: int = 0

    @classmethod
    def from_environment(cls) -> Ranks:
        """From torchrun's variables; alone without them."""
        read = {name: int(os.environ.get(name, default)) for name, default in DEFAULTS.items()}
        return cls(read["RANK"], read["WORLD_SIZE"], read["LOCAL_RANK"], read["GROUP_RANK"])

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is one process only."""
        return self.world == 1

    def connect(self) -> None:
        """Join the process group: NCCL on GPUs, gloo on a CPU.

        Raises:
            SetupError: this rank cannot reach the others over the network.
        """
        if self.is_alone:
            return
        import torch
        from accelerate import PartialState

        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(self.local)
        try:
            PartialState(cpu=not on_gpu, timeout=WAIT)
        except RuntimeError as err:
            # gloo's word for it; all other errors name their cause
            if "connectFullMesh" not in str(err):
                raise
            raise SetupError(
                f"rank {self.rank} on {socket.gethostname()} cannot reach the others: {str(err).rpartition('] ')[2]}",
                hint=f"gloo listens at `{os.environ.get(INTERFACE, 'this host’s name')}`; set `{INTERFACE}` on each"
                " machine to the interface that leads to the others",
            ) from err

    def gathered(self, items: Sequence[T]) -> list[T]:
        """The items of all ranks, in rank order, on every rank."""
        if self.is_alone:
            return list(items)
        from accelerate.utils import gather_object

        return list(gather_object(list(items)))

    def agreed(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        if self.is_alone:
            return value
        from accelerate.utils import broadcast_object_list

        box: list[Any] = [value]
        # in place: afterwards the list of every rank holds rank 0's value
        broadcast_object_list(box, from_process=0)
        return box[0]  # type: ignore[no-any-return]

    def largest(self, counts: Sequence[int]) -> list[int]:
        """The largest of any rank, of each of as many counts on all ranks."""
        return [max(each) for each in zip(*self.gathered([counts]), strict=True)]

    def wait(self) -> None:
        """Until every rank is here."""
        if not self.is_alone:
            from accelerate.utils import wait_for_everyone

            wait_for_everyone()

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Rank 0 enters first, the others after it: rank 0 creates something that the others find."""
        if not self.is_main:
            self.wait()
        try:
            yield
        finally:
            if self.is_main:
                self.wait()


ALONE = Ranks()
DEFAULTS = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "GROUP_RANK": "0"}
WAIT = timedelta(hours=2)
"""The longest wait of a rank for another; it is long because rank 0 alone runs the warm-up."""
