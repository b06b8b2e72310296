"""Run folders to one HTML file that works from disk: outcome first, then the pictures, then the completions behind them."""

from grpo_cli.jobs.report.page import write_report

__all__ = ["write_report"]
