"""What Ollama wants beside a `.gguf` file: a chat template of its own kind, learned from what the tokenizer's renders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tokens import prompts_of
from grpo_cli.recipe.sections.recipe import Recipe

UNKNOWN = "# The chat template could not be put in Ollama's words; Ollama takes the file's own where it knows it."
Turn = tuple[str, str]
"""Role and content."""


@dataclass(frozen=True)
class ChatForm:
    """A chat as texts around its contents.

    `none` stands first where there is no system message; an answer follows each question, so `answers` is the end of a question
    and the beginning of its answer.
    """

    none: str
    system: tuple[str, str]
    asks: str
    answers: str
    ends: str

    def render(self, turns: list[Turn]) -> str:
        """The text after which the model goes on."""
        text = "" if turns[0][0] == "system" else self.none
        for role, content in turns:
            if role == "system":
                text += self.system[0] + content + self.system[1]
            else:
                text += self.asks + content + self.answers if role == "user" else content + self.ends
        return text

    def template(self) -> str:
        """The same in the language of Go's templates, as Ollama fills them."""
        system = f"{{{{ if .System }}}}{_go(self.system[0])}{{{{ .System }}}}{_go(self.system[1])}"
        user = f'{{{{ if eq .Role "user" }}}}{_go(self.asks)}{{{{ .Content }}}}{_go(self.answers)}'
        answer = f'{{{{ else if eq .Role "assistant" }}}}{{{{ .Content }}}}{_go(self.ends)}'
        return (
            f"{system}{{{{ else }}}}{_go(self.none)}{{{{ end }}}}"
            f"{{{{ range .Messages }}}}{user}{answer}{{{{ end }}}}{{{{ end }}}}"
        )


def chat_form(policy: Policy) -> ChatForm | None:
    """How this policy's chats are written; None where that cannot be said as texts around contents."""
    s, u, a, v = ("\u27e6s\u27e7", "\u27e6u\u27e7", "\u27e6a\u27e7", "\u27e6v\u27e7")  # contents that no template has
    try:
        alone = _around(policy, [("user", u)])
        led = _around(policy, [("system", s), ("user", u)])
        longer = _around(policy, [("user", u), ("assistant", a), ("user", v)])
        if (len(alone), len(led), len(longer)) != (2, 3, 4):
            return None
        checks = [
            [("user", u), ("assistant", a), ("user", v)],
            [("system", s), ("user", u)],
            [("system", s), ("user", v), ("assistant", a), ("user", u), ("assistant", v), ("user", a)],
        ]
        between = longer[2]  # the end of an answer and the beginning of a question
        found = []
        for cut in range(len(between) + 1):
            asks = between[cut:]
            if alone[0].endswith(asks) and led[1].endswith(asks):
                none, before = alone[0].removesuffix(asks), led[1].removesuffix(asks)
                form = ChatForm(none, (led[0], before), asks, alone[1], between[:cut])
                if all(form.render(turns) == _rendered(policy, turns) for turns in checks):
                    found.append(form)
    except Exception:  # noqa: BLE001 - a template may refuse a role by an error of any kind
        return None
    # the same text can be parted anywhere; an answer ends with a token that ends it, where there is one
    marks = tuple(str(one) for one in policy.tokenizer.added_tokens_decoder.values())
    whole = [form for form in found if form.ends and form.asks.startswith(marks)]
    return next(iter([*whole, *found]), None)


def modelfile(policy: Policy, recipe: Recipe, file: str) -> str:
    """The text of Ollama's `Modelfile` for a `.gguf` file that lies beside it."""
    lines = [f"FROM ./{file}"]
    if recipe.data.plain:
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    elif (form := chat_form(policy)) is not None:
        lines.append(f'TEMPLATE """{form.template()}"""')
    else:
        lines.append(UNKNOWN)
    system = recipe.data.system
    if system is not None and not re.search(r"\{[^{}]*\}", system):
        lines.append(f'SYSTEM """{system}"""')
    tokenizer: Any = policy.tokenizer
    for end in sorted(policy.end_ids):
        text = tokenizer.convert_ids_to_tokens(end)
        lines.append(f'PARAMETER stop "{text}"')
    return "\n".join([*lines, f"PARAMETER temperature {recipe.sample.temperature:g}", ""])


def _rendered(policy: Policy, turns: list[Turn]) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    return prompts_of(policy.tokenizer, policy.chat).chat_text(messages, opens=True)


def _around(policy: Policy, turns: list[Turn]) -> list[str]:
    """What stands before, between and after the contents."""
    text = _rendered(policy, turns)
    return re.split("|".join(re.escape(content) for _, content in turns), text)


def _go(text: str) -> str:
    """A text in a Go template: as it is, or quoted where it would be read as something else."""
    if "{{" not in text and "}}" not in text and '"""' not in text:
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{{ "{quoted}" }}}}'
