"""One conversation of an episode as a chat template renders it, and the token ids in it that the model generated.

How this works. The turn of the model is found in the rendered text in one of two forms: as the template renders the
last turn, or as the opening of a turn followed by the model's text. The second form is for templates such as Qwen3's,
which writes an empty thought into a last turn without one and removes it when a tool result follows; the model
generated none. The ids behind the turn are the observation and the opening of the next turn (`suffix`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from grpo_cli.environments.tools.calls import CallForm, UnknownCallForm, call_id, learn_call_form, turn_with_calls
from grpo_cli.errors import SetupError
from grpo_cli.policy.prompts.prompt import Prompts

Role = Literal["user", "tool"]
Render = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""Text of messages, with or without the opening of the model's turn."""
Encode = Callable[[str], list[int]]
"""Token ids of such a text."""
Results = tuple[tuple[str, str], ...]
"""Tool results for the calls of one turn: pairs of tool name and text."""
WORDS, THOUGHT = "sure", "maybe"
ANSWERS = (WORDS, f"<think>\n{THOUGHT}\n</think>\n\n{WORDS}")
"""Examples of a turn of the model: plain, and after a thought."""
MOST_KEPT = 1024
"""Turns whose ids are remembered."""


class Conversation:
    """A question, and turns of the model with observations between them."""

    def __init__(
        self,
        render: Render,
        encode: Encode,
        end_ids: Collection[int],
        role: Role,
        name: str,
        form: CallForm | None = None,
    ) -> None:
        """`name` is the model's, for messages; `form` how it writes calls, where observations are results of tools."""
        self.render, self.encode, self.ends = render, encode, frozenset(end_ids)
        self.role, self.name, self.form = role, name, form
        self._turns: dict[tuple[str, tuple[str, ...]], tuple[list[int], list[int]]] = {}

    def check(self) -> None:
        """Check that the template closes turns, keeps the model's text and thoughts (also when another turn follows),
        and shows observations.

        Raises:
            SetupError: it does not.
        """
        # the same ids for two answers: the end token stands before the words, so it does not close them
        if self._closed(self._rendered(self._turn(WORDS))) == self._closed(self._rendered(self._turn("no"))):
            raise self._unclosed()
        seen = self.observation("seen")
        _, suffix = self.parted(seen, WORDS)
        if suffix == self.parted(self.observation("heard"), WORDS)[1]:
            raise self._refusal(f"leaves out what a `{self.role}` message says")
        for answer in ANSWERS:
            turn, shown = self._turn(answer, _names(seen)), self._messages(seen)
            said, behind = self.parted(seen, answer)
            twice = self._rendered(turn, *shown, turn, *shown, opens=True)
            is_kept = self.encode(twice)[: len(said)] == said and behind == suffix
            # some show no words beside a call at all
            if not is_kept or (THOUGHT in answer and WORDS in twice and THOUGHT not in twice):
                raise self._forgets(answer)

    def observation(self, text: str) -> str | Results:
        """An observation of this text."""
        return text if self.form is None else (("look", text),)

    def parted(self, observation: str | Results, answer: str) -> tuple[list[int], list[int]]:
        """The ids up to the end of the turn `answer` inside the conversation with the observation, and the suffix: the
        ids of the observation and of the opening of the next turn.

        Raises:
            SetupError: the conversation does not contain the turn as the model wrote it.
        """
        return self.parted_by(self._messages(observation), answer, _names(observation))

    def parted_by(
        self, messages: Sequence[Mapping[str, Any]], answer: str, called: tuple[str, ...] = ()
    ) -> tuple[list[int], list[int]]:
        """The same where these messages follow a turn that calls the tools of these names.

        Raises:
            SetupError: as `parted`.
        """
        turn = self._turn(answer, called)
        ids = self.encode(self._rendered(turn, *messages, opens=True))
        found = self._turns.get((answer, called))
        if found is None:
            # the turn as the last one, as the model saw it while generating
            before = self._rendered(turn)
            # or the opening of a turn and the text, without what the template put in between; empty if there is nothing
            # how it is rendered
            opened, words = self._rendered(opens=True), list[int]()
            at = before.find(answer, len(opened))
            if before.startswith(opened) and at >= 0:
                ids_of_words, start = self.encode(opened + before[at:]), len(self.encode(opened))
                end = next((i for i in range(start, len(ids_of_words)) if ids_of_words[i] in self.ends), None)
                words = [] if end is None else ids_of_words[: end + 1]
            found = self._closed(before), words
            if len(self._turns) < MOST_KEPT:  # a model may make up names of tools without end
                self._turns[answer, called] = found
        for said in found:
            # compare ids, not text: the same text may be tokenised differently when more text follows
            if said and ids[: len(said)] == said:
                return said, ids[len(said) :]
        raise self._forgets(answer)

    def _forgets(self, answer: str) -> SetupError:
        thoughts = " (it takes thoughts out of earlier turns)" if THOUGHT in answer else ""
        return self._refusal(f"does not keep what was said before when a `{self.role}` message is added{thoughts}")

    def _refusal(self, what: str, mend: str = "") -> SetupError:
        other = "tool" if self.role == "user" else "user"
        if not mend and self.form is not None:
            mend = (
                "give a template that renders every message by itself with `model.chat_template`; TRL ships some, such as"
                " `trl/chat_templates/qwen3_training.jinja`"
            )
        mend = mend or (
            f"try `environment.role: {other}`, a template option that keeps thoughts, or a template that renders every"
            " message by itself"
        )
        return SetupError(f"the chat template of `{self.name}` {what}", place="`environment`", hint=mend)

    def _messages(self, observation: str | Results) -> list[dict[str, Any]]:
        if isinstance(observation, str):
            return [{"role": self.role, "content": observation}]
        return [
            {"role": self.role, "name": name, "content": text, "tool_call_id": call_id(i)}
            for i, (name, text) in enumerate(observation)
        ]

    def _turn(self, answer: str, called: tuple[str, ...] = ()) -> dict[str, Any]:
        """A turn with the text `answer`, which calls the tools of these names."""
        if self.form is not None and called:
            return turn_with_calls(called, "{}" if self.form.as_text else {}, answer)
        return {"role": "assistant", "content": answer}

    def _rendered(self, *turns: Mapping[str, Any], opens: bool = False) -> str:
        """The text of a conversation with these turns."""
        try:
            return self.render([{"role": "user", "content": "go"}, *turns], opens)
        except Exception as err:  # a template may raise whatever its author wrote
            said = " ".join(str(err).split())[:200]
            raise self._refusal(f"cannot render a `{self.role}` message after a turn: {said}") from err

    def _closed(self, text: str) -> list[int]:
        """Ids up to the last end token: the model generates no more of its turn than that."""
        ids = self.encode(text)
        # from the end: the text of a turn may hold the token too
        for at in range(len(ids) - 1, -1, -1):
            if ids[at] in self.ends:
                return ids[: at + 1]
        raise self._unclosed()

    def _unclosed(self) -> SetupError:
        return self._refusal(
            "closes a turn with no token that ends a completion",
            "set `eos_token` of its tokenizer to the token that the template closes a turn with",
        )


def _names(observation: str | Results) -> tuple[str, ...]:
    return () if isinstance(observation, str) else tuple(name for name, _ in observation)


def call_form(prompts: Prompts, name: str) -> CallForm:
    """How the chat template of the model `name` writes calls of tools.

    Raises:
        SetupError: it writes none.
    """
    chat = prompts.chat
    try:
        if chat is None:
            raise UnknownCallForm("there is none")
        return learn_call_form(lambda messages, tools, opens: chat.render(messages, tools, opens=opens))
    except UnknownCallForm as err:
        raise SetupError(
            f"the chat template of `{name}` does not say how tools are called: {err}",
            place="`environment`",
            hint="take a model that was trained to call tools, or give its template with `model.chat_template`",
        ) from err
