"""What the verifiers that run things in lanes share: lanes started once, one pool of threads a batch, a fresh lane after a fault."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo_verifiers.sandbox.lane import LaneFailed, limits_of, memory_files, run_script, script
from grpo_verifiers.sandbox.lanes import Lanes, LaneSlot, default_count
from grpo_verifiers.sandbox.tiers import Tier
from grpo_verifiers.verdict import Verdict, error, over_limit
from grpo_verifiers.verifier import Sample, Verifier


class SandboxedVerifier(Verifier):
    """Subclasses find their tier and judge one sample; `options.lanes` is how many run at a time (0: cores less GPUs)."""

    runs_elsewhere = True
    shown: tuple[str, ...] = ()
    """Folders that programs of other languages may read besides the system's."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._lock = threading.Lock()
        self._lanes: Lanes | None = None
        self.tier: Tier | None = None
        """The isolation in force, once started: for the manifest and every report of a run."""

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    @abstractmethod
    def find_tier(self) -> Tier:
        """The tier to run in.

        Raises:
            Unavailable: this machine has none that will do.
        """

    @abstractmethod
    def judge_one(self, lanes: Lanes, sample: Sample) -> Verdict:
        """The verdict on one sample."""

    def start(self) -> None:
        """Find the tier and make the lanes."""
        self.ready()

    def ready(self) -> Lanes:
        """The lanes of this process, made at the first call; a forked copy makes its own."""
        with self._lock:
            if self._lanes is None or not self._lanes.is_ours:
                self.tier = self.find_tier()
                lanes = Lanes(self.tier.name, self.options.lanes or default_count(), self.shown)
                try:
                    self.prove(lanes)
                except BaseException:
                    lanes.close()
                    raise
                self._lanes = lanes
            return self._lanes

    def prove(self, lanes: Lanes) -> None:
        """Try what every sample needs in lanes that were just made.

        Raises:
            Unavailable: it does not work on this machine.
        """

    def close(self) -> None:
        """End the lanes."""
        with self._lock:
            if self._lanes is not None:
                self._lanes.close()
                self._lanes = None

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order; as many at a time as there are lanes."""
        lanes = self.ready()
        if len(samples) <= 1 or lanes.count == 1:
            return [self.judge_one(lanes, sample) for sample in samples]
        workers = min(lanes.count, len(samples))
        with ThreadPoolExecutor(workers, thread_name_prefix=type(self).__name__) as pool:
            return list(pool.map(lambda sample: self.judge_one(lanes, sample), samples))

    def in_a_slot(self, lanes: Lanes, run: Callable[[LaneSlot], Verdict], started: float) -> Verdict:
        """Run something in a slot of its own. A fault of the sandbox is never a zero: a fresh lane once, then no verdict."""
        with lanes.slot() as slot:
            try:
                return slot.attempt(run)
            except (LaneFailed, OSError) as err:
                trouble = str(err)
            if works(slot):
                # two fresh lanes broke under it and a third one is sound: that is the completion's own doing
                return over_limit("broke_the_sandbox", None, time.perf_counter() - started)
        return error("sandbox", trouble[:300], time.perf_counter() - started)


def works(slot: LaneSlot) -> bool:
    """Whether a fresh lane of the slot runs a program that is known to be good."""
    try:
        with memory_files(payload=script("print(6 * 7)")) as payload:
            ran = run_script(slot.lane("plain"), payload, limits_of("plain", 6.0, 512))
        return not ran.ended and ran.stdout == b"42\n"
    except (LaneFailed, OSError):
        slot.discard()
        return False
