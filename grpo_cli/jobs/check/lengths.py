"""Prompt lengths in tokens against the limits they will meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from grpo_cli.data.overlong import none_fits
from grpo_cli.data.rows import Row
from grpo_cli.jobs.check.findings import CheckFinding, Level
from grpo_cli.jobs.rows import prompt_limit
from grpo_cli.jobs.workplace import splits_of
from grpo_cli.recipe.arithmetic import unreached
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.episodes.running import refuse_begun

BARS = 8
WIDTH = 30


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """The token counts of the prompts that were looked at, shortest first."""

    counts: list[int]
    total: int
    """Prompts there are, looked at or not."""
    pairs: list[tuple[int, int]]
    """Tokens of each row alone, and with what its environment says at the start."""
    rows: Sequence[Row] = ()
    """Whose they are."""

    @classmethod
    def of(
        cls, counts: Sequence[int], total: int, alone: Sequence[int] | None = None, rows: Sequence[Row] = ()
    ) -> PromptLengths:
        """`alone`: the same without what an environment says at the start, where there is one."""
        return cls(sorted(counts), total, list(zip(alone or counts, counts, strict=True)), rows)

    @property
    def mean(self) -> float:
        return sum(self.counts) / len(self.counts)

    def quantile(self, share: float) -> int:
        """The smallest count that at least this share of the prompts does not exceed."""
        return self.counts[max(0, ceil(share * len(self.counts)) - 1)]


def refuse_lengths(lengths: PromptLengths | None, recipe: Recipe, context: int | None, held_out: Sequence[Row]) -> None:
    """What training refuses of the prompts' lengths; nothing of prompts where they are unknown.

    Raises:
        SetupError: completions leave no room for a prompt.
        DataError: no prompt of a split fits, or one does not with what its environment says at the start.
    """
    held = {id(row) for row in held_out}
    begun: list[tuple[int, int, Row]] = []
    for which in splits_of(recipe):
        limit = prompt_limit(recipe, which, context)
        if limit is None or lengths is None:
            continue
        own = [
            (*pair, row)
            for pair, row in zip(lengths.pairs, lengths.rows, strict=False)
            if (id(row) in held) == (which == "eval")
        ]
        if own and all(alone > limit for alone, _, _ in own):
            tokens, _, shortest = min(own, key=lambda one: one[0])
            raise none_fits(shortest, tokens, limit)
        budget = recipe.sample.max_tokens if which == "train" else recipe.eval.max_tokens or recipe.sample.max_tokens
        # a run measures before it trains
        begun = [(tokens, budget, row) for alone, tokens, row in own if alone <= limit] + begun
    for tokens, budget, row in begun if recipe.environment is not None else ():
        refuse_begun(row, tokens, budget, context)


def check_lengths(lengths: PromptLengths, recipe: Recipe, context: int | None) -> CheckFinding:
    """The histogram, and how many prompts are over a limit."""
    context = min((int(known) for known in (context, recipe.sample.started_context) if known is not None), default=None)
    room = None if context is None else context - recipe.sample.max_tokens
    limits = [limit for limit in (recipe.data.max_prompt_tokens, room) if limit is not None]
    data = {
        "n": len(lengths.counts),
        "total": lengths.total,
        "mean": lengths.mean,
        "p50": lengths.quantile(0.5),
        "p95": lengths.quantile(0.95),
        "max": lengths.counts[-1],
        "context": context,
        "limit": min(limits, default=None),
    }
    seen = f"{len(lengths.counts):,} of {lengths.total:,} " if lengths.total > len(lengths.counts) else ""
    spread = f"{seen}prompts {data['p50']:,} tokens at the median, p95 {data['p95']:,}, longest {data['max']:,}"
    lines = histogram(lengths.counts)
    if not limits:
        return CheckFinding("tokens", Level.OK, f"{spread}; no limit known", lines, data)
    limit = min(limits)
    over = sum(alone > limit for alone, _ in lengths.pairs)
    data["over"] = over
    where = (
        "`data.max_prompt_tokens`"
        if limit == recipe.data.max_prompt_tokens
        else f"context {context:,} - `sample.max_tokens`"
    )
    if over:
        level = Level.NOTE if limit == recipe.data.max_prompt_tokens else Level.WARN
        return CheckFinding(
            "tokens",
            level,
            f"{spread}; {over:,} of {len(lengths.counts):,} are over {limit:,} ({where}) and dropped",
            lines,
            data,
        )
    return CheckFinding("tokens", Level.OK, f"{spread}; none over {limit:,} ({where})", lines, data)


def check_unreached(recipe: Recipe, steps: int, context: int | None) -> Iterator[CheckFinding]:
    """A warning where lengths of the recipe contradict each other or the run's."""
    if said := unreached(recipe, steps, context):
        hint = "lower it, or let the run be longer"
        yield CheckFinding("lengths", Level.WARN, said[0], tuple(said[1:]), hint=hint)


def histogram(counts: Sequence[int]) -> tuple[str, ...]:
    """Bars over at most eight even ranges of whole numbers."""
    low, high = min(counts), max(counts)
    step = max(1, ceil((high - low + 1) / BARS))
    bins = [0] * ((high - low) // step + 1)
    for count in counts:
        bins[(count - low) // step] += 1
    digits = len(f"{high:,}")
    most = max(bins)
    lines = []
    for index, found in enumerate(bins):
        first, last = low + index * step, min(high, low + (index + 1) * step - 1)
        bar = "▇" * ceil(found / most * WIDTH)
        span = f"{first:>{digits},}" if first == last else f"{first:>{digits},}-{last:<{digits},}"
        lines.append(f"{span:<{2 * digits + 1}} {bar:<{WIDTH}} {found:,}".rstrip())
    return tuple(lines)
