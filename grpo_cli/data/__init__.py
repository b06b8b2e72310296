"""Rows: where they come from, how columns become prompts and golds, and which of them can be trusted.

Names are imported when first used: a recipe error needs the templates only, and must not wait for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_cli.data.audit import Audit, audit_golds
    from grpo_cli.data.overlong import Fitting, drop_overlong
    from grpo_cli.data.rows import Row, load_rows

__all__ = ["Audit", "Fitting", "Row", "audit_golds", "drop_overlong", "load_rows"]

_HOME = {
    "Audit": "audit",
    "audit_golds": "audit",
    "Fitting": "overlong",
    "drop_overlong": "overlong",
    "Row": "rows",
    "load_rows": "rows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
