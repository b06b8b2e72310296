"""A wheel of `grpo-cli` holds `grpo_cli` alone and needs the wheel of `grpo-verifiers`, so that no file lies in two wheels; an
editable install of a checkout has both folders on its path and needs no package of ours from an index.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NeedsVerifiers(BuildHookInterface):  # type: ignore[type-arg]
    """Named in pyproject.toml as the custom hook of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is "standard" or "editable"."""
        if version == "standard":
            build_data["dependencies"].append(f"grpo-verifiers=={self.metadata.version}")
