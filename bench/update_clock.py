"""The clock of `bench_update.py`: seconds of a step without its generation, and what device and processor did in one."""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Clock:
    """Times steps without their generation, profiles one more, prints the result and ends the process."""

    def __init__(self, settings: dict[str, Any], draw: Callable[..., list[list[int]]]) -> None:
        self.settings, self.on_cuda, self.draw = settings, settings["device"] == "cuda", draw
        self.profiles = self.on_cuda and not settings["whole"]  # the kernels of a generation take long to read
        self.notes: list[str] = []
        self.began = self.drawn = 0.0
        self.seconds: list[float] = []
        self.calls = self.begun = 0
        self.peak: float | None = None
        self.reserved: float | None = None
        self.profiler: Any = None
        self.host: cProfile.Profile | None = None

    def now(self) -> float:
        """Wall seconds once the device is idle."""
        if self.on_cuda:
            import torch

            torch.cuda.synchronize()
        return time.perf_counter()

    def sample(self, rows: int) -> list[list[int]]:
        """Random samples, their making not counted."""
        began = self.now()
        found = self.draw(self.settings, self.calls, rows)
        self.calls += 1
        self.drawn += self.now() - began
        return found

    def callback(self) -> Any:
        """The trainer callback that marks steps."""
        from transformers import TrainerCallback

        clock = self

        class Marks(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                clock.mark()

        return Marks()

    def mark(self) -> None:
        """A step begins, and the one before is over."""
        now, warm, steps = self.now(), self.settings["warm"], self.settings["steps"]
        if self.begun:
            self.seconds.append(now - self.began - self.drawn)
            print(f"step {self.begun}: {self.seconds[-1]:.3f} s", file=sys.stderr, flush=True)
        if self.on_cuda and self.begun == warm + steps:
            import torch

            # of the whole run: what a captured graph works in is only allocated while it is captured
            self.peak = torch.cuda.max_memory_allocated() / 2**30
            self.reserved = torch.cuda.max_memory_reserved() / 2**30
            if self.profiles:
                self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                self.profiler.start()
        profiled_one = warm + steps + int(self.profiles)
        if self.begun == profiled_one and self.settings["host"]:
            if self.profiler is not None:
                self.profiler.stop()
            self.host = cProfile.Profile()
            self.host.enable()
        elif self.begun == profiled_one or self.host is not None:
            self.finish()
        self.begun += 1
        self.began, self.drawn = self.now(), 0.0

    def finish(self) -> None:
        """One JSON line; no checkpoint of the bench is wanted, so the run is left here."""
        warm, steps = self.settings["warm"], self.settings["steps"]
        timed = self.seconds[warm : warm + steps]
        found: dict[str, Any] = {
            "seconds": statistics.median(timed),
            "least": min(timed),
            "most": max(timed),
            "n": len(timed),
            "first": self.seconds[0],
            "peak_gib": self.peak,
            "reserved_gib": self.reserved,
            "notes": self.notes,
        }
        if self.host is not None:
            self.host.disable()
            found["host"] = longest(self.host)
        if self.profiler is not None:
            if self.host is None:
                self.profiler.stop()
            found |= profiled(self.profiler)
            found["busy"] = found["gpu_seconds"] / found["seconds"]
        print("RESULT " + json.dumps(found), flush=True)
        os._exit(0)


def profiled(profiler: Any) -> dict[str, Any]:
    """Launches by the host, kernels on the device, seconds in which at least one of them ran, and the longest five."""
    from torch.autograd import DeviceType

    launches, graphs, spans, by_name = 0, 0, [], {}
    for event in profiler.profiler.kineto_results.events():
        name = event.name()
        if event.device_type() == DeviceType.CUDA:
            spans.append((event.start_ns(), event.start_ns() + event.duration_ns()))
            by_name[name[:70]] = by_name.get(name[:70], 0) + event.duration_ns() / 1e9
        elif name.startswith(("cudaLaunch", "cuLaunch", "cudaMemcpy", "cudaMemset")):
            launches += 1
        elif name.startswith("cudaGraphLaunch"):
            launches, graphs = launches + 1, graphs + 1
    busy, until = 0, 0
    for start, stop in sorted(spans):
        busy += max(0, stop - max(start, until))
        until = max(until, stop)
    top = dict(sorted(by_name.items(), key=lambda item: -item[1])[:8])
    return {
        "launches": launches,
        "graph_launches": graphs,
        "kernels": len(spans),
        "gpu_seconds": busy / 1e9,
        "top": top,
    }


def longest(host: cProfile.Profile, count: int = 40) -> list[str]:
    """The functions under which the processor spent a step, the profile's own cost among it, longest first."""
    stats: Any = pstats.Stats(host)
    rows = sorted(stats.stats.items(), key=lambda item: -item[1][3])[:count]
    return [
        f"{spent * 1e3:7.1f} ms {calls:6} x {'/'.join(Path(file).parts[-2:])}:{line} {name}"
        for (file, line, name), (_, calls, _, spent, _) in rows
    ]
