"""The ids between two turns: a suffix of what the template renders, and no template that rewrites what was said."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from grpo_cli.errors import SetupError
from grpo_cli.policy.builtin import byte_tokenizer
from grpo_cli.policy.tiny import byte_level
from grpo_cli.policy.turns import Suffixes

LINES = (
    "{%- for m in messages -%}<|{{ m.role if m.role in ('user', 'assistant', 'system') else 'user' }}|>"
    "{{ m.content }}<|end|>\n{% endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""Every message closed by itself, with a line end behind the token that ends a turn."""
FORGETS = (
    "{%- for m in messages -%}<|{{ m.role }}|>"
    "{%- if m.role == 'assistant' and not loop.last and '</think>' in m.content -%}"
    "{{ m.content.split('</think>')[-1].strip() }}{%- else -%}{{ m.content }}{%- endif -%}<|end|>"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""Takes the thought out of every turn but the last."""
OPEN = "{%- for m in messages -%}<|{{ m.role }}|>{{ m.content }}\n{% endfor -%}"
NO_TOOLS = (
    "{%- for m in messages -%}{%- if m.role == 'tool' -%}{{ raise_exception('no tools here') }}{%- endif -%}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{%- endfor -%}"
)


def tokenizer(template: str) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|end|>", chat_template=template)


def suffixes(template: str, role: Any = "user") -> Suffixes:
    made = tokenizer(template)
    return Suffixes.of(made, [made.eos_token_id], role, "tiny/made")


def test_the_embedded_model_puts_the_observation_between_the_roles() -> None:
    made = byte_tokenizer()
    end = made.eos_token_id
    found = Suffixes.of(made, [end], "user", "builtin:tiny")
    assert made.decode(found("k0x3y4", end)) == "<|user|>k0x3y4<|assistant|>"
    assert len(found("k0x3y4", end)) == 8


def test_what_the_template_writes_behind_the_end_of_a_turn_belongs_to_the_suffix() -> None:
    made, found = tokenizer(LINES), suffixes(LINES)
    end = made.eos_token_id
    assert made.decode(found("seen", end)) == "\n<|user|>seen<|end|>\n<|assistant|>"
    said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "ok"}]
    whole = made.apply_chat_template(
        [*said, {"role": "user", "content": "seen"}], add_generation_prompt=True, return_dict=False
    )
    opened = made.apply_chat_template(said[:1], add_generation_prompt=True, return_dict=False)
    assert whole == [*opened, *made("ok").input_ids, end, *found("seen", end)]


def test_a_turn_that_was_cut_off_is_closed_first() -> None:
    made, found = tokenizer(LINES), suffixes(LINES)
    end = made.eos_token_id
    assert found("seen", made("k").input_ids[0]) == [end, *found("seen", end)]


def test_a_template_that_forgets_thoughts_is_refused_with_its_name_and_the_mend() -> None:
    with pytest.raises(SetupError) as err:
        suffixes(FORGETS)
    assert "chat template of `tiny/made` does not keep what was said before" in str(err.value)
    assert "takes thoughts out of earlier turns" in str(err.value)
    assert "environment.role: tool" in err.value.hint


def test_a_role_that_the_template_refuses_is_named() -> None:
    with pytest.raises(SetupError, match="cannot render a `tool` message after a turn: no tools here") as err:
        suffixes(NO_TOOLS, "tool")
    assert "environment.role: user" in err.value.hint


def test_a_template_without_an_end_of_turn_is_refused() -> None:
    with pytest.raises(SetupError, match="closes a turn with no token that ends a completion"):
        suffixes(OPEN)


def test_an_end_token_that_stands_before_the_answer_is_no_end_of_turn() -> None:
    with pytest.raises(SetupError, match="closes a turn with no token"):
        suffixes("{%- for m in messages -%}<|end|><|{{ m.role }}|>{{ m.content }}{% endfor -%}")
