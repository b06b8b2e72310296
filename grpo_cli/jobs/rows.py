"""The rows of a job with the compiled golds of every verifier, and the rows that do not fit the model left out.

`load_split` loads rows, fills templates, adds what the recipe's environment offers and drops rows with bad golds, with a note.
`fit_split` drops those whose prompt is longer than the context less `sample.max_tokens`, and refuses a split of which none is
left. `PromptTokenCounts` counts a chat's tokens without rendering every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import Row, Split, drop_overlong, load_rows
from grpo_cli.data.sources import Which
from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError, SetupError
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.prompts.turns import doubles, template_warnings
from grpo_cli.policy.tokens import prompts_of, special_tokens, tag_tokens
from grpo_cli.recipe.sections.recipe import Canary, Recipe, chat_options
from grpo_cli.reward.judge import Judge

if TYPE_CHECKING:
    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.policy.vision import Vision

MOST_TOKENS_A_BYTE = 11
"""A token has at least one byte, and a normaliser (NFKC) turns one byte into at most 11."""


def load_split(recipe: Recipe, which: Which, base: Path | None, judge: Judge, display: Display) -> Split:
    """Rows whose golds pass their own verifiers.

    Raises:
        DataError, SetupError: as `load_rows` and `audit_golds`.
    """
    rows = load_rows(recipe.data, which, base, lambda said: display.note("warn", said))
    if judge.worlds is not None:
        rows = offered(rows, judge.worlds.tools)
    audit = audit_golds(rows, judge.verifiers, recipe.data.on_bad_gold, judge.rule)
    if audit.dropped:
        first = audit.dropped[0]
        said = f"{which}: dropped {len(audit.dropped)} of {len(rows)} rows with a bad gold"
        display.note("warn", f"{said}, first {first.place}: {first.message}")
    if audit.doubtful:
        first = audit.doubtful[0]
        said = f"{which}: {len(audit.doubtful)} of {len(rows)} golds read like none"
        display.note("warn", f"{said}, first {first.place}: {first.message}")
    return Split(audit.rows, audit.golds)


def load_canary(
    recipe: Recipe, base: Path | None, judge: Judge, display: Display, trained: Sequence[Row]
) -> Split | None:
    """The canary rows with their golds, loaded like held-out rows; None if the recipe has none.

    Raises:
        DataError: a row cannot be used, or is also one of the rows `trained` on.
    """
    spec = recipe.monitor.canary
    if spec is None:
        return None
    found = load_split(as_held_out(recipe, spec), "eval", base, judge, display)
    prompts = {row.question for row in trained}
    for row in found.rows:
        if row.question in prompts:
            raise DataError(
                "a canary row is a training row too: what is trained on cannot watch the training",
                place=row.place,
                hint="take it out of one of the two",
            )
    return found


def as_held_out(recipe: Recipe, spec: Canary) -> Recipe:
    """The recipe with the canary rows in place of its held-out ones."""
    data = recipe.data.model_copy(update={"eval": spec.rows, "where": None})
    return recipe.model_copy(update={"data": data})


def offered(rows: list[Row], tools: list[dict[str, Any]]) -> list[Row]:
    """The rows with the tools of the environment; unchanged if it has none.

    Raises:
        DataError: a row has tools of its own.
    """
    if not tools:
        return rows
    for row in rows:
        if row.tools:
            raise DataError(
                "this row offers tools, and so does `environment`",
                place=row.place,
                hint="take the column `tools` out of the rows",
            )
    return [replace(row, tools=tools) for row in rows]


def takes_rows(recipe: Recipe, splits: Mapping[Which, Split]) -> Callable[[Tokenizer], None]:
    """Refuses a tokenizer whose chat template does not render the rows, before weights are loaded in vain."""

    def accept(tokenizer: Tokenizer) -> None:
        prompts = prompts_of(tokenizer, chat_options(recipe))
        for split in splits.values():
            prompts.refuse(split.rows)

    return accept


def prompt_warnings(policy: Policy, rows: Sequence[Row], stop: Sequence[str]) -> list[str]:
    """Sentences about text doubled in prompts, and about disagreements of chat template and recipe; `stop` as in
    `sample.stop`."""
    tokenizer = policy.tokenizer
    said = doubles(rows, special_tokens(tokenizer), tag_tokens(tokenizer), policy.encode)
    if all(row.messages is None for row in rows):
        return said
    added = {token: str(one) for token, one in tokenizer.added_tokens_decoder.items()}

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    return template_warnings(policy.prompts, encode, added, policy.end_ids, stop) + said


def fit_split(
    recipe: Recipe, split: Split, which: Which, policy: Policy, display: Display, served: int | None = None
) -> Split:
    """The rows whose prompt leaves room for a completion in the model's context. The number of the others is noted.

    `served`: the context length of the vLLM server, if one generates.
    """
    limit = prompt_limit(recipe, which, policy.context, served)
    fitting = drop_overlong(split.rows, PromptTokenCounts(policy.encode, split.rows, limit, policy.vision), limit)
    if not fitting.dropped:
        return split
    display.note("warn", fitting.summary())
    kept = {row.id for row in fitting.rows}
    return split.take([i for i, row in enumerate(split.rows) if row.id in kept])


def prompt_limit(recipe: Recipe, which: Which, own: int | None, served: int | None = None) -> int | None:
    """Most tokens of a prompt of this split: by the recipe and the contexts; None where nothing limits them.

    Raises:
        SetupError: the completions alone do not fit.
    """
    limits = [recipe.data.max_prompt_tokens]
    # the model's own context, or the shorter one that vLLM is started with
    contexts = (own, recipe.sample.started_context, served)
    if (context := min((int(known) for known in contexts if known is not None), default=None)) is not None:
        key, longest = "sample.max_tokens", recipe.sample.max_tokens
        if which == "eval" and (recipe.eval.max_tokens or 0) > longest:
            key, longest = "eval.max_tokens", recipe.eval.max_tokens or 0
        if context <= longest:
            whose = "vLLM's context" if context != own else "the model's context"
            raise SetupError(f"`{key}` is {longest}, {whose} only {context} tokens", hint=f"lower `{key}`")
        limits.append(context - longest)
    return min((known for known in limits if known is not None), default=None)


class PromptTokenCounts:
    """Prompt lengths in tokens. A row that fits by its number of bytes gets that number as an upper bound, and is not
    tokenised."""

    def __init__(
        self, encode: Callable[[Row], list[int]], rows: Sequence[Row], limit: int | None, vision: Vision | None = None
    ) -> None:
        self.encode, self.limit = encode, limit
        self.image_most = None if vision is None else vision.most_tokens
        # for a bound, the template is taken to add at most the whole length of one rendered row
        self.template = {_turns(row): len(encode(row)) for row in rows[:1]}

    def __call__(self, row: Row) -> int:
        has_tools = bool(row.tools) or any("tool_calls" in message for message in row.messages or ())
        unbound = has_tools or (bool(row.images) and self.image_most is None)
        template = None if unbound else self.template.get(_turns(row))
        if template is not None and self.limit is not None:
            texts = [m["content"] for m in row.messages] if row.messages else [row.prompt]
            texts.append(row.prefill)
            most = template + MOST_TOKENS_A_BYTE * sum(len(text.encode()) for text in texts)
            # to count an image's tokens exactly it is decoded and scaled, which takes longer than all else here
            most += len(row.images) * (self.image_most or 0)
            if most <= self.limit:
                return most
        return len(self.encode(row))


def _turns(row: Row) -> tuple[str, ...]:
    return tuple(m["role"] for m in row.messages or [])
