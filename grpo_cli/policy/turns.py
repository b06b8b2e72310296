"""What a chat template puts between two turns of the model: the suffix of an observation, as token ids.

A conversation grows by appending ids and is never encoded again, for the same text has several encodings and the policy
sampled one of them. That only works with a template that keeps what it rendered when a message is added: one that takes
thoughts out of earlier turns is refused, since the model would be trained on conversations that it never meets in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from grpo_cli.environments.tools.form import CallForm, NoForm, call_id, learn, turn_with_calls
from grpo_cli.errors import SetupError
from grpo_cli.policy.tokens import prompts_of

if TYPE_CHECKING:
    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.policy.prompts.prompt import Prompts

Role = Literal["user", "tool"]
Render = Callable[[Sequence[Mapping[str, Any]], bool], list[int]]
"""Token ids of messages, with or without the opening of the model's turn."""
Results = tuple[tuple[str, str], ...]
"""What tools answered to the calls of one turn: their names, and the texts."""

ANSWERS = ("ok", "<think>\nmaybe\n</think>\n\nok")
"""What the model may have said in a turn: plainly, and after a thought."""
MOST_KEPT = 4096
"""Observations whose ids are remembered."""


class Suffixes:
    """The ids that follow a turn of the model, for one tokenizer, template and role."""

    def __init__(
        self,
        render: Render,
        end_ids: Collection[int],
        role: Role,
        name: str,
        form: CallForm | None = None,
    ) -> None:
        """`name` is the model's, for messages; `form` how it writes calls, where observations are results of tools."""
        self.render, self.ends, self.role, self.name = render, frozenset(end_ids), role, name
        self.form = form
        self._kept: dict[str | Results, list[int]] = {}
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
        *,
        has_calls: bool = False,
    ) -> Suffixes:
        """Those of a tokenizer with the options `chat` of its template; `has_calls`: a turn acts by calling tools.

        Raises:
            SetupError: the template cannot be continued turn by turn.
        """

        prompts = prompts_of(tokenizer, chat)

        def render(messages: Sequence[Mapping[str, Any]], opens: bool) -> list[int]:
            text = prompts.chat_text(messages, opens=opens)
            return list(tokenizer(text, add_special_tokens=False).input_ids)

        form = call_form(prompts, name) if has_calls else None
        found = cls(render, end_ids, role, name, form)
        found.check()
        return found

    def check(self) -> None:
        """Whether the template keeps what it rendered, also of a turn with a thought.

        Raises:
            SetupError: it does not.
        """
        for answer in ANSWERS:
            self._suffix("seen" if self.form is None else (("look", "seen"),), answer)

    def __call__(self, observation: str | Results, last: int) -> list[int]:
        """The ids of an observation and of the opening of the next turn; `last` is the last token of the turn before.

        A turn that was cut off is closed first, with the token that the template closes turns with.
        """
        found = self._kept.get(observation)
        if found is None:
            found = self._suffix(observation, "ok")
            if len(self._kept) < MOST_KEPT:
                self._kept[observation] = found
        return found if last in self.ends else [self.closing, *found]

    def _suffix(self, observation: str | Results, answer: str) -> list[int]:
        before = self._cut(self._rendered(answer, called=observation))
        after = self._rendered(answer, called=observation, seen=self._messages(observation))
        if after[: len(before)] != before:
            raise SetupError(
                f"the chat template of `{self.name}` does not keep what was said before when a `{self.role}` message is"
                " added" + (" (it takes thoughts out of earlier turns)" if "<think>" in answer else ""),
                place="`environment`",
                hint=self._mend(),
            )
        return after[len(before) :]

    def _mend(self) -> str:
        if self.form is not None:
            return (
                "give a template that renders every message by itself with `model.chat_template`; TRL ships some, such as"
                " `trl/chat_templates/qwen3_training.jinja`"
            )
        other = "tool" if self.role == "user" else "user"
        return (
            f"try `environment.role: {other}`, a template option that keeps thoughts, or a template that renders every"
            " message by itself"
        )

    def _messages(self, observation: str | Results) -> list[dict[str, Any]]:
        if isinstance(observation, str):
            return [{"role": self.role, "content": observation}]
        return [
            {"role": self.role, "name": name, "content": text, "tool_call_id": call_id(i)}
            for i, (name, text) in enumerate(observation)
        ]

    def _rendered(
        self, answer: str, called: str | Results = "", seen: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """A turn that says `answer`, and calls tools where `called` holds their results, with what it then saw."""
        turn: dict[str, Any] = {"role": "assistant", "content": answer}
        if self.form is not None and not isinstance(called, str):
            turn = turn_with_calls([name for name, _ in called], "{}" if self.form.as_text else {}, answer)
        messages = [{"role": "user", "content": "go"}, turn, *seen]
        try:
            return self.render(messages, bool(seen))
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


def call_form(prompts: Prompts, name: str) -> CallForm:
    """How the chat template of the model `name` writes calls of tools.

    Raises:
        SetupError: it writes none.
    """
    chat = prompts.chat
    try:
        if chat is None:
            raise NoForm("there is none")
        return learn(lambda messages, tools, opens: chat.render(messages, tools, opens=opens))
    except NoForm as err:
        raise SetupError(
            f"the chat template of `{name}` does not say how tools are called: {err}",
            place="`environment`",
            hint="take a model that was trained to call tools, or give its template with `model.chat_template`",
        ) from err
