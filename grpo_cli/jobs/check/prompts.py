"""Checks that every row becomes the intended prompt, and that its tokens are within the limits.

`check_prompts` renders all rows and warns of doubled text and of text that decoding removes. `refuse_tokenizer` and
`refuse_lengths` raise the errors that training would. `PromptLengths` holds the token counts of the checked rows;
`check_lengths` draws their histogram and counts those over a limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil

from grpo_cli.data.rows import Row, none_fits
from grpo_cli.errors import UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.tokens import PromptMaker, UnknownTokens, prompt_maker
from grpo_cli.jobs.open_job import splits_of
from grpo_cli.jobs.rows import prompt_limit
from grpo_cli.policy.ban import banned_ids
from grpo_cli.policy.loading.sizes import ModelSizes, local_sizes, vocabulary_of
from grpo_cli.policy.prompts.turns import doubles
from grpo_cli.policy.tokens import refuse_other_tokens, refuse_unpadded, tags_among
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.episodes.running import refuse_begun
from grpo_verifiers.thinking import opening_at_end

EATEN = re.compile(r"\x08(?:oxed|egin|eta|inom|ar)|\x0c(?:rac|orall)|\t(?:ext\{|imes|heta|frac|binom)|\r(?:ho|ight)")
"""What is left of `\\boxed`, `\\frac`, `\\text`, `\\right`, … with one backslash in JSON."""
SEEN = 2000
TOKEN = re.compile(r"</?[A-Za-z][\w:-]*>|<\|[^|>\s]+\|>")


def check_prompts(maker: PromptMaker, rows: Sequence[Row], recipe: Recipe) -> CheckFinding:
    """One finding: a row that cannot be rendered is a failure; doubled text, or settings without effect, are
    warnings."""
    try:
        maker.prompts.refuse(rows)
        first = maker.prompts.text(rows[0])
        assistant_prefix = maker.prompts.assistant_prefix(rows[0])
    except UserError as err:
        return replace(failed("prompt", err), code=err.code)
    special = maker.encodes.special
    marks = maker.prompts.thinking_marks
    tags = tags_among(special, maker.roles, marks)
    warned = [] if rows[0].messages is None else maker.template_warnings(recipe.sample.stop)
    warned += doubles(rows, special, tags, lambda row: maker.ids([row])[0])
    prefill = rows[0].prefill
    if prefill and (opened := opening_at_end(first.removesuffix(prefill))) and prefill.startswith(opened.strip()):
        warned.append(f"the chat template opens `{opened.strip()}` already, and `data.prefill` does so again")
    said = []
    for name, one in recipe.verify.items():
        options = one.options
        wanted = {f"<{end}{tag}>" for tag in options.get("tags") or () for end in ("", "/")}
        if one.kind == "format" and "tags" not in options:
            wanted = {"<think>", "</think>", "<answer>", "</answer>"}
        patterns = options.get("pattern") or ()
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            wanted |= set(TOKEN.findall(str(pattern).replace("\\", "")))
        for word in sorted(wanted & {text for token, text in special.items() if token not in tags}):
            said.append(
                f"`verify.{name}` looks for `{word}`, which is a special token of the model: decoding strips it, no"
                " completion can hold it"
            )
    warned += said + eaten_escapes(rows)
    how = "plain text" if rows[0].messages is None else "the model's chat template"
    if recipe.model.chat_template and rows[0].messages is not None:
        how = "`model.chat_template`"
    begun = assistant_prefix.strip()
    begun = begun if len(begun) <= 40 else f"{begun[:39]}…"
    known = f"; the answer begins with `{begun}`, which verifiers know" if assistant_prefix else ""
    if marks.begin:
        known += f"; verifiers read its thinking, from `{marks.begin}` to `{marks.end}`, as `<think>`"
    data = {"begun": assistant_prefix}
    if warned:
        return CheckFinding(
            "prompt", Level.WARN, warned[0], tuple(warned[1:]), data, "`grpo check --show` prints the prompt"
        )
    return CheckFinding("prompt", Level.OK, f"{how} renders the rows{known}", data=data)


def eaten_escapes(rows: Sequence[Row]) -> list[str]:
    """One sentence for the rows whose JSON took the backslash of a TeX command for an escape of its own."""
    found = [
        (row.place, key, match)
        for row in rows[:SEEN]
        for key, value in row.fields.items()
        if isinstance(value, str) and (match := EATEN.search(value))
    ]
    if not found:
        return []
    place, key, match = found[0]
    code, word = ord(match[0][0]), match[0][1:]
    more = f"; so do {len(found) - 1} more" if found[1:] else ""
    return [
        f"{place}: `{key}` holds U+{code:04X} and `{word}`, a command of TeX whose backslash JSON took for an escape: write two"
        f" backslashes{more}"
    ]


def refuse_tokenizer(maker: PromptMaker, recipe: Recipe, sizes: ModelSizes | None) -> None:
    """Refuse a tokenizer that training would refuse: without a pad token, unfit for `sample.ban`, or different from the
    critic's.

    `sizes`: those of the model, where its files have them.

    Raises:
        RecipeError, SetupError: as training would.
    """
    refuse_unpadded(maker.roles.get("pad_token") or maker.roles.get("eos_token"))
    if recipe.sample.ban:
        ends = maker.ends if maker.model_ends is not None else ()
        can_stop = bool(recipe.sample.stop)
        banned_ids(
            recipe.sample.ban,
            lambda text: maker.encodes.ids([text], True)[0],
            lambda token: maker.encodes.decode([token]),
            ends,
            can_stop=can_stop,
        )
    critic, distil = recipe.train.critic, recipe.distil
    for key, other in (
        ("train.critic.from", critic.model(recipe.model) if critic is not None else None),
        ("distil.teacher", distil.model(recipe.model) if distil is not None else None),
    ):
        known, known_there = (
            vocabulary_of(recipe.model, sizes),
            vocabulary_of(other, local_sizes(other)) if other else None,
        )
        if other is None or known is None or known_there is None:
            continue
        with suppress(UnknownTokens):
            there = prompt_maker(other).encodes.vocabulary()
            refuse_other_tokens(f"`{key}: {other.path}`", maker.encodes.vocabulary(), there, known, known_there)


BARS = 8
WIDTH = 30


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """The token counts of the prompts that were looked at, shortest first."""

    counts: list[int]
    total: int
    """Number of prompts, checked or not."""
    pairs: list[tuple[int, int]]
    """Tokens of each row alone, and with the first message of its environment."""
    rows: Sequence[Row] = ()
    """Whose they are."""

    @classmethod
    def of(
        cls, counts: Sequence[int], total: int, alone: Sequence[int] | None = None, rows: Sequence[Row] = ()
    ) -> PromptLengths:
        """`alone`: the counts without the environment's first message, if there is one."""
        return cls(sorted(counts), total, list(zip(alone or counts, counts, strict=True)), rows)

    @property
    def mean(self) -> float:
        return sum(self.counts) / len(self.counts)

    def quantile(self, share: float) -> int:
        """The smallest count that at least this share of the prompts does not exceed."""
        return self.counts[max(0, ceil(share * len(self.counts)) - 1)]


def refuse_lengths(lengths: PromptLengths | None, recipe: Recipe, context: int | None, held_out: Sequence[Row]) -> None:
    """Refuse prompt lengths that training would refuse; unknown lengths are not checked.

    Raises:
        SetupError: completions leave no room for a prompt.
        DataError: no prompt of a split fits, or one does not fit together with the environment's first message.
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
        said = f"{spread}; {over:,} of {len(lengths.counts):,} are over {limit:,} ({where}) and dropped"
        return CheckFinding("tokens", level, said, lines, data)
    return CheckFinding("tokens", Level.OK, f"{spread}; none over {limit:,} ({where})", lines, data)


def check_images(maker: PromptMaker, rows: Sequence[Row]) -> CheckFinding:
    """How large the images of the rows are, and how many tokens one costs."""
    images = [image for row in rows for image in row.images]
    smallest, largest = (pick(images, key=lambda one: one.width * one.height) for pick in (min, max))
    sizes = " to ".join(dict.fromkeys(f"{one.width:,} x {one.height:,}" for one in (smallest, largest)))
    said, data = f"{len(images):,} images of {sizes} pixels", {"n": len(images)}
    try:
        costs = sorted(map(maker.cost, images))
    except UnknownTokens as err:
        return CheckFinding("images", Level.UNKNOWN, f"{said}; {err}", data=data, hint="`--full` asks it")
    middle = costs[len(costs) // 2]
    data |= {"tokens/p50": middle, "tokens/max": costs[-1]}
    return CheckFinding(
        "images", Level.OK, f"{said}; one costs {middle:,} tokens at the median, {costs[-1]:,} at most", data=data
    )


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
