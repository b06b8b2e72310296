"""Compares how a chat template opens and ends the model's turn with where prompts end and which tokens end a
completion.

How this works: `template_warnings` renders a turn and looks for what closes it; `doubles` looks for special tokens in the rows' own
words and for openings that template and tokenizer both write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from grpo_cli.data.images import MARK
from grpo_cli.data.rows import Row
from grpo_cli.errors import SetupError
from grpo_cli.policy.prompts.prompt import Prompts
from grpo_cli.policy.prompts.trial import TemplateRefuses

ASKED, SAID, NEXT = "First question?", "First answer.", "Second question?"
"""Words that no template contains itself."""
ASKS, SAYS = {"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}
SHOWN = 40


def template_warnings(
    prompts: Prompts,
    encode: Callable[[str], Sequence[int]],
    added: Mapping[int, str],
    ends: Collection[int] | None,
    stop: Sequence[str],
) -> list[str]:
    """One sentence for each thing that a chat template and the rest of a recipe disagree about.

    Args:
        prompts: how rows become prompts; nothing is found where they are no chats.
        encode: the token ids of a text of the template.
        added: the tokenizer's added tokens.
        ends: the tokens that end a completion; None where they are unknown.
        stop: the texts that do (`sample.stop`).
    """
    found = [
        f"`model.template_args.{name}` has no effect: the model's chat template does not read it"
        for name in prompts.unread_args()
    ]
    try:
        said = [unopened(prompts), None if ends is None else unended(prompts, encode, added, ends, stop)]
    except (TemplateRefuses, SetupError):  # `Prompts.refuse` reports it, with a row
        said = []
    return found + [text for text in said if text is not None]


def unopened(prompts: Prompts) -> str | None:
    """Finds a template that ignores `add_generation_prompt` although it writes an opening before answers. None for a
    template that writes the answer directly after the question (Mistral's).

    Raises:
        TemplateRefuses, SetupError: it does not render a question and an answer.
    """
    # a template that reads the switch makes two texts; one that ignores it may open the turn always, or never
    prompt = prompts.chat_text([ASKS], opens=True)
    if prompt != prompts.chat_text([ASKS], opens=False):
        return None
    between = prompts.chat_text([ASKS, SAYS], opens=False).partition(ASKED)[2].partition(SAID)[0]
    opening = between.removeprefix(prompt.rpartition(ASKED)[2])
    if not opening.strip():
        return None
    return (
        f"the chat template does not open the assistant's turn: a prompt ends with {_end(prompt)!r}, and an answer stands behind"
        f" {_end(opening)!r}; a template that reads `add_generation_prompt` can be given with `model.chat_template`"
    )


def unended(
    prompts: Prompts,
    encode: Callable[[str], Sequence[int]],
    added: Mapping[int, str],
    ends: Collection[int],
    stop: Sequence[str],
) -> str | None:
    """Finds a template that ends an answer with a token or a text that ends no completion. None if it does, or if nothing
    stands behind an answer.

    Raises:
        TemplateRefuses, SetupError: it does not render a question and an answer.
    """
    text = prompts.chat_text([ASKS, SAYS], opens=False)
    longer = prompts.chat_text([ASKS, SAYS, {"role": "user", "content": NEXT}], opens=False)
    # some end no turn: the opening of the next one does (GLM)
    for whole in (text, longer.partition(NEXT)[0]):
        before, _, tail = whole.rpartition(SAID)
        if not before:
            return None  # it shows no answer
        ids = encode(tail)
        if any(token in ends for token in ids) or any(one in tail for one in stop):
            return None
        first = next((added[token] for token in ids if token in added), None)
        if first is not None:
            named = ", ".join(f"`{added.get(token, token)}`" for token in sorted(ends)) or "nothing"
            return (
                f"the chat template ends a turn with `{first}`, and a completion is ended by {named} alone: an answer that"
                f" closes its turn goes on to `sample.max_tokens`; `sample.stop: ['{first}']` ends it there"
            )
    if closing := text.rpartition(SAID)[2].strip():
        return (
            f"the chat template ends a turn with the text {_end(closing)!r}, which ends no completion: an answer that closes its"
            f" turn goes on to `sample.max_tokens`; `sample.stop` with that text ends it there"
        )
    return None


def _end(text: str) -> str:
    return text if len(text) <= SHOWN else f"…{text[-SHOWN:]}"


# Doubled openings: rows that already contain the template, or begin with the token that the tokenizer puts first.

SEEN = 2000
"""Number of rows checked; a few suffice, because a data set is templated as a whole."""


def doubles(
    rows: Sequence[Row], special: Mapping[int, str], tags: set[int], encode: Callable[[Row], Sequence[int]]
) -> list[str]:
    """One sentence for each doubled opening.

    Args:
        special: the tokenizer's special tokens.
        tags: those of them that rows may hold as text, such as `<think>`.
        encode: the token ids of a row's prompt.
    """
    rows = rows[:SEEN]
    if not rows:
        return []
    words = sorted(
        # longest first: an alternation takes the first that fits
        # some models' token for an image is spelt as our mark, which stands for one
        (
            text
            for token, text in special.items()
            if token not in tags and text and not (text == MARK and rows[0].images)
        ),
        key=len,
        reverse=True,
    )
    if not words:
        return []
    pattern = re.compile("|".join(map(re.escape, words)))
    found: dict[str, list[Row]] = {}
    for row in rows:
        for message in row.messages or ():
            for word in set(pattern.findall(message["content"])):
                found.setdefault(word, []).append(row)
    said = [
        f"{len(held):,} of {len(rows):,} prompts hold `{word}` in their own words, and the chat template writes its"
        f" tokens too: they would stand twice, first {held[0].place}"
        for word, held in found.items()
    ]
    # a few rows suffice: the first tokens come from template and tokenizer, not from the row
    begun = [ids for ids in (encode(row) for row in rows[:10]) if len(ids) > 1 and ids[0] == ids[1]]
    if begun and begun[0][0] in special and not found:
        said.append(f"the first token `{special[begun[0][0]]}` stands twice: in the rows, and from the tokenizer")
    return said
