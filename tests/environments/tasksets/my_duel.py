"""An environment of two seats."""

from __future__ import annotations

import verifiers.v1 as vf


class DuelConfig(vf.EnvConfig):
    left: vf.AgentConfig = vf.AgentConfig()
    right: vf.AgentConfig = vf.AgentConfig()


class DuelEnv(vf.Env[DuelConfig]):
    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.left.run(task)
        await agents.right.run(task)


__all__ = ["DuelEnv"]
