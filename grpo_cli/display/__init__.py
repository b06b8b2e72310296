"""What a person sees of a run. A display reads records and metrics; it measures nothing itself."""

from grpo_cli.display.choose import make_display
from grpo_cli.display.frame.sample import SampleView, view_samples
from grpo_cli.display.info import Card, Display, RunInfo, Source

__all__ = ["Card", "Display", "RunInfo", "SampleView", "Source", "make_display", "view_samples"]
