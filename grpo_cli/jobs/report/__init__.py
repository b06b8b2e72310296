"""Makes one HTML file, readable from disk, of run folders: the outcome first, then figures, then the completions behind
them."""

from grpo_cli.jobs.report.page import write_report

__all__ = ["write_report"]
