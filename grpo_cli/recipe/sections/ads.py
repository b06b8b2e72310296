"""The section `train.ads`: clusters of rows, and windows in them at the boundary of what the policy can do."""

from __future__ import annotations

from grpo_cli.recipe.sections.fields import Section, Whole


class AdsSpec(Section):
    """Options of `select: ads`. See `grpo explain ads`."""

    active: Whole = 4
    """Clusters that a step draws from; each gives `sample.prompts` / `active` rows, the width of its window. Fewer make steps of
    rows more like each other."""
    clusters: Whole | None = None
    """Clusters; left out, one for every 64 rows, at most 64. More are purer and leave a window less way to go."""
    reset: Whole | None = None
    """Steps after which all windows go back to the easiest rows; left out, never. The authors do so at each pass over the data.
    Too few, and no window ever gets to the harder rows of its cluster."""
