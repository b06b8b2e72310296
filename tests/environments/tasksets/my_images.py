"""A taskset that needs a container."""

from __future__ import annotations

import verifiers.v1 as vf


class ImageTaskset(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self) -> list[vf.Task]:
        return [vf.Task(vf.TaskData(idx=0, prompt="Go.", image="python:3.12"), self.config.task)]


__all__ = ["ImageTaskset"]
