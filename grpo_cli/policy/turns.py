"""The token ids that a chat template puts between two turns of the model: the suffix of an observation.

A conversation grows by appending ids and is never encoded again, for the same text has several encodings and the policy
sampled one of them. This needs a template that keeps earlier turns when a message is added. A template that removes
thoughts from earlier turns is refused: the model would be trained on conversations that never occur in use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from grpo_cli.policy.prompts.conversation import WORDS, Conversation, Results, Role, call_form
from grpo_cli.policy.tokens import prompts_of

if TYPE_CHECKING:
    from grpo_cli.policy.contract import Tokenizer

MOST_KEPT = 4096
"""Observations whose ids are remembered."""


class TurnSuffixes:
    """The ids that follow a turn of the model, for one tokenizer, template and role."""

    def __init__(self, conversation: Conversation) -> None:
        """
        Raises:
            SetupError: the template cannot be continued turn by turn.
        """
        conversation.check()
        self.conversation, self.form = conversation, conversation.form
        self.closing = conversation.parted(conversation.observation("seen"), WORDS)[0][-1]
        self._kept: dict[str | Results, list[int]] = {}

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        end_ids: Collection[int],
        role: Role,
        name: str,
        chat: Mapping[str, object] | None = None,
        *,
        has_calls: bool = False,
    ) -> TurnSuffixes:
        """The suffixes for a tokenizer; `chat` holds arguments of its template, `has_calls`: a turn acts by calling
        tools.

        Raises:
            SetupError: the template cannot be continued turn by turn.
        """
        prompts = prompts_of(tokenizer, chat)

        def encode(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False).input_ids)

        form = call_form(prompts, name) if has_calls else None
        return cls(
            Conversation(
                lambda messages, opens: prompts.chat_text(messages, opens=opens), encode, end_ids, role, name, form
            )
        )

    def __call__(self, observation: str | Results, last: int) -> list[int]:
        """The ids of an observation and of the opening of the next turn; `last` is the last token of the turn before.

        A turn that was cut off is closed first, with the token that the template closes turns with.
        """
        # cached: rendering is a round trip to another process, and environments repeat a few observations
        found = self._kept.get(observation)
        if found is None:
            found = self.conversation.parted(observation, WORDS)[1]
            if len(self._kept) < MOST_KEPT:
                self._kept[observation] = found
        # a turn that the model ended itself has its end token among its ids already
        return found if last in self.conversation.ends else [self.closing, *found]
