"""The state of the other ranks on all machines, and whether they are alive.

Each rank writes its phase into the store that torchrun keeps (on machine 0) every second. This has two uses. A message
about a hang lists the phases of all ranks, because a waiting rank is as silent as the one that it waits for. And it
ends waits: a machine without power or network closes no connection, so a collective would wait for it for half an hour.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import SetupError, UserError

# Counts the requests to stop by a user or a scheduler.

ONE_REQUEST_S = 3.0
"""SIGTERMs closer together than this are one request, and so are SIGHUPs, which a shell and its terminal both send."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a run to stop. The last one is sent when the terminal is closed; a process under `nohup` ignores it, and goes on ignoring it."""
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""What schedulers send some time before they kill (Slurm's `--signal=USR1@120`, a limit of CPU time): a stop as by SIGTERM, where
the program that runs this has no use of its own for them."""


def stop_signals() -> list[signal.Signals]:
    """Those of `STOPS` and `WARNINGS` that ask this process to stop: none that it is set to ignore or to use otherwise."""
    stops = [n for n in STOPS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    return stops + [n for n in WARNINGS if signal.getsignal(n) == signal.SIG_DFL]


@dataclass
class StopRequests:
    """Counts the requests to stop."""

    count: int = 0
    at: float = float("-inf")

    def counts(self, number: int) -> bool:
        """Count this signal unless it belongs to the previous request; returns whether it was counted."""
        before, self.at = self.at, time.monotonic()
        if number != signal.SIGINT and self.at - before < ONE_REQUEST_S:
            return False
        self.count += 1
        return True


OLD_S = 3.0
"""A rank that sent nothing for this long does not run: it sends every second (in worlds above 16 ranks, less often)."""
START_S = 300.0
"""A rank may take this long until its first status, which it sends once its libraries are imported."""
CLOSED_S = 20.0
"""The store is gone for good after this: torchrun on machine 0 has ended, and not as the run ends."""


_key = "grpo/rank/{}".format


@dataclass(frozen=True)
class RankStatus:
    """What a rank sends of itself. `count` grows, so that machines need not agree on the time; `end` is how it failed."""

    machine: int
    host: str
    phase: str = "start"
    silent_s: float = 0.0
    count: int = 0
    end: str = ""


class Peers:
    """This rank's status, and what it received of the others; idle where there is one process.

    Args:
        ranks: which rank this is.
        machine: the number of its machine.
        lost_s: after this time without a word from any rank of a machine, the machine is lost.
        connect: makes a client of the store.
    """

    def __init__(
        self, ranks: Ranks, machine: int = 0, lost_s: float = 120.0, connect: Callable[[], Any] | None = None
    ) -> None:
        self.ranks, self.lost_s, self._connect = ranks, lost_s, connect or _store
        # one store serves them all
        self.every_s = max(1.0, ranks.world / 16)
        self._old_s = OLD_S * self.every_s
        self.status = RankStatus(machine, socket.gethostname())
        self._received: dict[int, tuple[RankStatus, float]] = {}
        self._began = self._answered = time.monotonic()
        self._closed = ""
        self._over = threading.Event()

    @contextmanager
    def watching(self, give_up: Callable[[UserError], None]) -> Iterator[None]:
        """Send and receive while inside; `give_up` is called, in a thread, when a machine is lost.

        Raises:
            UserError: instead of the broken connection to a rank that failed or died, with its name.
        """
        if self.ranks.is_alone:
            yield
            return
        threads = [
            threading.Thread(target=self._talk, name="peers", daemon=True),
            threading.Thread(target=self._watch, args=(give_up,), name="peers-watch", daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        except Exception as err:
            from torch.distributed import DistError

            # what may be another rank's end; gloo's errors have no type of their own
            is_broken = isinstance(err, DistError) or (isinstance(err, RuntimeError) and "gloo" in str(err).lower())
            if is_broken and (found := self.explain(err)) is not None:
                raise found from err
            text = err.render() if isinstance(err, UserError) else f"{type(err).__name__}: {err}"
            self.status = replace(self.status, end=text.removeprefix("error: ").splitlines()[0])
            # long enough for the thread to send it once
            time.sleep(min(1.2 * self.every_s, OLD_S))
            raise
        finally:
            self._over.set()
            threads[1].join()

    def leave(self, phase: str, silent_s: float) -> None:
        """Note what this rank does and for how long nothing has moved in it; the thread sends it."""
        self.status = replace(self.status, phase=phase, silent_s=silent_s)

    def others(self) -> str:
        """The other ranks in words, one after another; empty where nothing is known."""
        said = []
        for rank, (status, _) in sorted(self._received.items()):
            age = self._age(rank)
            state = f"does not run for {age:.0f}s, in" if age > self._old_s else f"{status.silent_s:.0f}s in"
            said.append(f"{self._name(rank)}: {state} `{status.phase}`")
        return "; ".join(said)

    def explain(self, err: Exception) -> UserError | None:
        """What ended the connection that broke with `err`: a rank that failed or is silent; None where all are well."""
        deadline = time.monotonic() + 2 * self._old_s
        while time.monotonic() < deadline:
            for rank, (status, _) in sorted(self._received.items()):
                if status.end:
                    return SetupError(f"{self._name(rank)} failed first: {status.end}")
                if self._age(rank) > self._old_s and not self._closed:
                    return self._gone(self._name(rank), err)
            if self._closed and self.status.machine:
                return self._gone("machine 0", err)
            time.sleep(0.1)
        return None

    def lost(self) -> UserError | None:
        """The machine that sends nothing any more, if there is one."""
        now = time.monotonic()
        for rank, (status, _) in sorted(self._received.items()):
            if status.end and self._age(rank) > CLOSED_S:
                return SetupError(f"{self._name(rank)} failed first: {status.end}")
        limit = CLOSED_S if self._closed else self.lost_s
        if now - self._answered > min(limit, self.lost_s) and self.status.machine:
            return self._lost("machine 0", now - self._answered)
        if len(self._received) < self.ranks.world - 1:
            waited = now - self._began
            missing = [r for r in range(self.ranks.world) if r != self.ranks.rank and r not in self._received]
            return self._lost(f"rank {missing[0]}", waited) if waited > START_S else None
        machines: dict[int, list[int]] = {}
        for rank, (status, _) in self._received.items():
            machines.setdefault(status.machine, []).append(rank)
        machines.pop(self.status.machine, None)
        for machine, ranks in sorted(machines.items()):
            age = min(self._age(rank) for rank in ranks)
            if age > self.lost_s:
                host = self._received[ranks[0]][0].host
                which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {min(ranks)}-{max(ranks)}"
                return self._lost(f"machine {machine} ({host}, {which})", age)
        return None

    def _age(self, rank: int) -> float:
        return time.monotonic() - self._received[rank][1]

    def _name(self, rank: int) -> str:
        status = self._received[rank][0]
        is_here = status.machine == self.status.machine
        return f"rank {rank}" if is_here else f"rank {rank} on machine {status.machine} ({status.host})"

    def _gone(self, who: str, err: Exception) -> UserError:
        lines = str(err).strip().splitlines()
        return SetupError(
            f"{who} is gone" + (f": {lines[0].rpartition('] ')[2].partition('. This is')[0]}" if lines else ""),
            hint="killed, out of memory, or its machine went down; go on with `--resume`",
        )

    def _lost(self, who: str, seconds: float) -> UserError:
        return SetupError(
            f"{who} was not heard for {seconds:.0f}s",
            hint="is the machine up, and the network between? Go on with `--resume`; `stop.lost_s` sets the limit",
        )

    def _talk(self) -> None:
        store: Any = None
        while not self._over.is_set():
            try:
                # a separate client: torch's own may be blocked in a wait, which is when this is needed
                store = store or self._connect()
                self.status = replace(self.status, count=self.status.count + 1)
                store.set(_key(self.ranks.rank), json.dumps(asdict(self.status)))
                others = [rank for rank in range(self.ranks.world) if rank != self.ranks.rank]
                # reading a missing key would block
                there = [rank for rank in others if rank in self._received or store.check([_key(rank)])]
                for rank, sent in zip(there, store.multi_get([_key(r) for r in there]), strict=True):
                    status = RankStatus(**json.loads(sent))
                    # by our own clock, from when the count moved: the machines' clocks may differ by more than a silence
                    if rank not in self._received or status.count != self._received[rank][0].count:
                        self._received[rank] = (status, time.monotonic())
                self._answered, self._closed = time.monotonic(), ""
            except RuntimeError as err:  # torch's errors of a store that does not answer
                store, self._closed = None, str(err)
            self._over.wait(self.every_s)

    def _watch(self, give_up: Callable[[UserError], None]) -> None:
        while not self._over.wait(1.0):
            found = self.lost()
            if found is not None:
                give_up(found)
                return


def _store() -> Any:
    """A connection of its own to torchrun's store."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(*place, is_master=False, timeout=timedelta(seconds=10))
