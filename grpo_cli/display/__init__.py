"""What a person sees of a run. A display reads records and metrics; it measures nothing itself."""

from grpo_cli.display.choose import make_display
from grpo_cli.display.info import Card, Display, RunInfo, Source
from grpo_cli.display.sample import SampleView, view_samples

__all__ = ["Card", "Display", "RunInfo", "SampleView", "Source", "make_display", "view_samples"]
