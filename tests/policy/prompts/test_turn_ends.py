"""What a chat template writes before and behind an answer, held against the end of a prompt and the end of a completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trl

from grpo_cli.policy.prompts.chat_template import ChatTemplate
from grpo_cli.policy.prompts.prompt import Prompts
from grpo_cli.policy.prompts.turns import template_warnings, unopened
from tests.builders.chat_models import FAMILIES, make_tokenizer

IGNORES = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
GLM = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NAMES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def warnings(family: str, *, ends: list[str] | None = None, stop: tuple[str, ...] = (), **named: Any) -> list[str]:
    """What is said of a family's tokenizer; `ends`: the tokens that end a completion, its end token where None."""
    tokenizer = make_tokenizer(family, **named)
    prompts = Prompts(ChatTemplate(tokenizer.chat_template, tokenizer.special_tokens_map))
    ids = tokenizer.convert_tokens_to_ids([tokenizer.eos_token] if ends is None else ends)

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    return template_warnings(
        prompts, encode, {i: str(t) for i, t in tokenizer.added_tokens_decoder.items()}, set(ids), stop
    )


@pytest.mark.parametrize("family", [name for name, kind in FAMILIES.items() if kind.template and name != "gemma"])
def test_nothing_is_said_of_a_family_whose_turns_end_a_completion(family: str) -> None:
    assert warnings(family) == []


@pytest.mark.parametrize(
    ("family", "ends", "mark"),
    [
        ("gemma", ["<eos>"], "<end_of_turn>"),
        ("qwen3", ["<|endoftext|>"], "<|im_end|>"),
        ("llama3", ["<|begin_of_text|>"], "<|eot_id|>"),
    ],
)
def test_a_turn_whose_last_token_ends_nothing_is_named_with_the_key_that_ends_it(
    family: str, ends: list[str], mark: str
) -> None:
    (said,) = warnings(family, ends=ends)
    assert f"ends a turn with `{mark}`" in said and f"`{ends[0]}` alone" in said
    assert f"`sample.stop: ['{mark}']`" in said
    assert warnings(family, ends=[*ends, mark]) == [] == warnings(family, ends=ends, stop=(mark,))


def test_the_opening_of_the_next_turn_may_end_an_answer() -> None:
    special = {"additional_special_tokens": ["<|user|>", "<|assistant|>"], "chat_template": GLM}
    (said,) = warnings("base", **special)
    assert "ends a turn with `<|user|>`" in said
    assert warnings("base", ends=["<|endoftext|>", "<|user|>"], **special) == []


def test_a_turn_that_a_text_closes_is_named() -> None:
    closed = "{% for m in messages %}[{{ m.role }}] {{ m.content }} [/END]\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    (said,) = warnings("base", chat_template=closed)
    assert "ends a turn with the text '[/END]'" in said
    assert warnings("base", chat_template=closed, stop=("[/END]",)) == []


def test_a_template_that_opens_no_turn_is_named() -> None:
    (said,) = warnings("qwen3", chat_template=IGNORES)
    assert "does not open the assistant's turn" in said and "<|im_start|>assistant" in said
    (said,) = warnings("base", chat_template=NAMES)
    assert "ends with 'user: First question?" in said and "'assistant: '" in said


def test_an_answer_right_behind_the_question_needs_no_opening() -> None:
    assert unopened(Prompts(ChatTemplate("{% for m in messages %}{{ m.content }}\n{% endfor %}"))) is None


def test_templates_of_known_families_open_the_assistants_turn() -> None:
    files = sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))
    # those that take no text
    kept = [file for file in files if not file.stem.startswith(("llava", "idefics", "smolvlm"))]
    assert len(kept) > 40
    said = {
        file.stem: unopened(Prompts(ChatTemplate(file.read_text(), {"bos_token": "", "eos_token": ""})))
        for file in kept
    }
    assert {name: text for name, text in said.items() if text} == {}
