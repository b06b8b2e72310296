"""The run folder: what a run leaves on disk (DESIGN paragraph 6), written so that any moment may be its last."""

from grpo_cli.run.folder import RunFolder

__all__ = ["RunFolder"]
