"""Whether every row becomes the prompt that was meant: rendered, with nothing in it twice and nothing left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from grpo_cli.data.rows import Row
from grpo_cli.errors import UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.tokens import PromptMaker, UnknownTokens, prompt_maker
from grpo_cli.policy.ban import banned_ids
from grpo_cli.policy.loading.sizes import local_sizes
from grpo_cli.policy.prompts.doubles import doubles
from grpo_cli.policy.prompts.prompt import CLOCK
from grpo_cli.policy.prompts.tags import tags_among
from grpo_cli.policy.tokens import refuse_other_tokens
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_verifiers.thinking import opening_at_end

TOKEN = re.compile(r"</?[A-Za-z][\w:-]*>|<\|[^|>\s]+\|>")


def check_prompts(maker: PromptMaker, rows: Sequence[Row], recipe: Recipe) -> CheckFinding:
    """One finding: a row that cannot be rendered fails, what stands twice or does nothing is a warning."""
    try:
        maker.prompts.refuse(rows)
        first = maker.prompts.text(rows[0])
        assistant_prefix = maker.prompts.assistant_prefix(rows[0])
    except UserError as err:
        return replace(failed("prompt", err), code=err.code)
    special = maker.encodes.special
    tags = tags_among(special, maker.roles)
    warned = [] if rows[0].messages is None else maker.template_warnings(recipe.sample.stop)
    warned += doubles(rows, special, tags, lambda row: maker.ids([row])[0])
    prefill = rows[0].prefill
    if prefill and (opened := opening_at_end(first.removesuffix(prefill))) and prefill.startswith(opened.strip()):
        warned.append(f"the chat template opens `{opened.strip()}` already, and `data.prefill` does so again")
    warned += _stripped(recipe, {text for token, text in special.items() if token not in tags})
    how = "plain text" if rows[0].messages is None else "the model's chat template"
    if recipe.model.chat_template and rows[0].messages is not None:
        how = "`model.chat_template`"
    known = f"; the answer begins with `{_shown(assistant_prefix)}`, which verifiers know" if assistant_prefix else ""
    data = {"begun": assistant_prefix}
    if warned:
        return CheckFinding(
            "prompt", Level.WARN, warned[0], tuple(warned[1:]), data, "`grpo check --show` prints the prompt"
        )
    return CheckFinding("prompt", Level.OK, f"{how} renders the rows{known}", data=data)


def check_clock(maker: PromptMaker, rows: Sequence[Row]) -> Iterator[CheckFinding]:
    """A note where the chat template writes the date into the prompts: on another day they are others."""
    if (fix := maker.prompts.clock(rows)) is not None:
        yield CheckFinding("clock", Level.NOTE, CLOCK, hint=f"{fix}: then prompts stay the same")


def refuse_tokenizer(maker: PromptMaker, recipe: Recipe, known: int | None) -> None:
    """What training refuses of the tokenizer: no token to pad with, `sample.ban`, a critic that reads other tokens.

    `known`: how many tokens the model knows, where its files say.

    Raises:
        RecipeError, SetupError: as training would.
    """
    maker.refuse_roles()
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
    critic = recipe.train.critic
    other = critic.model(recipe.model) if critic is not None else None
    if critic is None or other is None or known is None or (sizes := local_sizes(other)) is None:
        return
    with suppress(UnknownTokens):
        there = prompt_maker(other).encodes.vocabulary()
        said = f"`train.critic.from: {critic.source}`"
        refuse_other_tokens(said, maker.encodes.vocabulary(), there, known, sizes.vocab)


def _shown(assistant_prefix: str) -> str:
    text = assistant_prefix.strip()
    return text if len(text) <= 40 else f"{text[:39]}…"


def _stripped(recipe: Recipe, dropped: set[str]) -> list[str]:
    """Words that verifiers of the recipe look for and that decoding takes out of every completion."""
    said = []
    for name, one in recipe.verify.items():
        options = one.options
        wanted = {f"<{end}{tag}>" for tag in options.get("tags") or () for end in ("", "/")}
        if one.kind == "format" and "tags" not in options:
            wanted = {"<think>", "</think>", "<answer>", "</answer>"}
        patterns = options.get("pattern") or ()
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            wanted |= set(TOKEN.findall(str(pattern).replace("\\", "")))
        for word in sorted(wanted & dropped):
            said.append(
                f"`verify.{name}` looks for `{word}`, which is a special token of the model: decoding strips it, no"
                " completion can hold it"
            )
    return said
