"""What a chat template puts between two turns of the model: the suffix of an observation, as token ids.

A conversation grows by appending ids and is never encoded again, for the same text has several encodings and the policy
sampled one of them. That only works with a template that keeps what it rendered when a message is added: one that takes
thoughts out of earlier turns is refused, since the model would be trained on conversations that it never meets in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from grpo_cli.errors import SetupError
from grpo_cli.policy.tokens import prompts_of

if TYPE_CHECKING:
    from grpo_cli.policy.contract import Tokenizer

Role = Literal["user", "tool"]
Render = Callable[[Sequence[Mapping[str, Any]], bool], list[int]]
"""Token ids of messages, with or without the opening of the model's turn."""

ANSWERS = ("ok", "<think>\nmaybe\n</think>\n\nok")
"""What the model may have said in a turn: plainly, and after a thought."""
MOST_KEPT = 4096
"""Observations whose ids are remembered."""


class Suffixes:
    """The ids that follow a turn of the model, for one tokenizer, template and role."""

    def __init__(self, render: Render, end_ids: Collection[int], role: Role, name: str) -> None:
        """`name` is the model's, for messages."""
        self.render, self.ends, self.role, self.name = render, frozenset(end_ids), role, name
        self._kept: dict[str, list[int]] = {}
        closed = self._cut(self._rendered(ANSWERS[0]))
        if closed == self._cut(self._rendered("no")):
            raise self._unclosed()
        self.closing = closed[-1]

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        end_ids: Collection[int],
        role: Role,
        name: str,
        chat: Mapping[str, object] | None = None,
    ) -> Suffixes:
        """Those of a tokenizer with the options `chat` of its template.

        Raises:
            SetupError: the template cannot be continued turn by turn.
        """

        prompts = prompts_of(tokenizer, chat)

        def render(messages: Sequence[Mapping[str, Any]], opens: bool) -> list[int]:
            text = prompts.chat_text(messages, opens=opens)
            return list(tokenizer(text, add_special_tokens=False).input_ids)

        found = cls(render, end_ids, role, name)
        found.check()
        return found

    def check(self) -> None:
        """Whether the template keeps what it rendered, also of a turn with a thought.

        Raises:
            SetupError: it does not.
        """
        for answer in ANSWERS:
            self._suffix("seen", answer)

    def __call__(self, observation: str, last: int) -> list[int]:
        """The ids of an observation and of the opening of the next turn; `last` is the last token of the turn before.

        A turn that was cut off is closed first, with the token that the template closes turns with.
        """
        found = self._kept.get(observation)
        if found is None:
            found = self._suffix(observation, "ok")
            if len(self._kept) < MOST_KEPT:
                self._kept[observation] = found
        return found if last in self.ends else [self.closing, *found]

    def _suffix(self, observation: str, answer: str) -> list[int]:
        before = self._cut(self._rendered(answer))
        after = self._rendered(answer, observation)
        if after[: len(before)] != before:
            raise SetupError(
                f"the chat template of `{self.name}` does not keep what was said before when a `{self.role}` message is"
                " added" + (" (it takes thoughts out of earlier turns)" if "<think>" in answer else ""),
                place="`environment`",
                hint=self._mend(),
            )
        return after[len(before) :]

    def _mend(self) -> str:
        other = "tool" if self.role == "user" else "user"
        return (
            f"try `environment.role: {other}`, a template option that keeps thoughts, or a template that renders every"
            " message by itself"
        )

    def _rendered(self, answer: str, observation: str | None = None) -> list[int]:
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": answer},
        ]
        if observation is not None:
            messages.append({"role": self.role, "content": observation})
        try:
            return self.render(messages, observation is not None)
        except Exception as err:  # a template may raise whatever its author wrote
            said = " ".join(str(err).split())[:200]
            raise SetupError(
                f"the chat template of `{self.name}` cannot render a `{self.role}` message after a turn: {said}",
                place="`environment`",
                hint=self._mend(),
            ) from err

    def _cut(self, ids: list[int]) -> list[int]:
        """Up to the last end token: the model generates no more of its turn than that."""
        for at in range(len(ids) - 1, -1, -1):
            if ids[at] in self.ends:
                return ids[: at + 1]
        raise self._unclosed()

    def _unclosed(self) -> SetupError:
        return SetupError(
            f"the chat template of `{self.name}` closes a turn with no token that ends a completion",
            place="`environment`",
            hint="set `eos_token` of its tokenizer to the token that the template closes a turn with",
        )
