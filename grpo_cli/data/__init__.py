"""Rows: where they come from, how columns become prompts and golds, and which of them can be trusted."""

from grpo_cli.data.audit import Audit, audit_golds
from grpo_cli.data.overlong import Fitting, drop_overlong
from grpo_cli.data.rows import Row, load_rows

__all__ = ["Audit", "Fitting", "Row", "audit_golds", "drop_overlong", "load_rows"]
