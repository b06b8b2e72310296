"""The ids between two turns: a suffix of what the template renders, and no template that rewrites what was said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trl
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


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("qwen3_training", "<|im_end|>"),
        ("qwen3_6", "<|im_end|>"),
        ("qwen2_5", "<|im_end|>"),
        ("llama3_1", "<|eot_id|>"),
    ],
)
def test_results_of_tools_stand_where_trl_puts_them(name: str, ends: str) -> None:
    inner = byte_level()
    inner.add_special_tokens([ends])
    template = (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=ends, bos_token="<|user|>", chat_template=template
    )
    found = Suffixes.of(made, [made.eos_token_id], "tool", name, has_calls=True)
    results = [("add", "5"), ("look", "at 3")][: 1 if name == "llama3_1" else 2]
    theirs = SimpleNamespace(
        _is_vlm=False,
        processing_class=made,
        _tokenizer=made,
        chat_template=template,
        chat_template_kwargs={},
    )
    messages = [{"role": "tool", "name": tool, "content": text} for tool, text in results]
    wanted = trl.GRPOTrainer._get_tool_suffix_ids(theirs, messages)  # type: ignore[arg-type]
    assert found(tuple(results), made.eos_token_id) == wanted
    assert "at 3" in made.decode(wanted) or len(results) == 1


def test_a_template_that_shows_no_calls_is_refused_with_the_mend() -> None:
    made = byte_tokenizer()
    with pytest.raises(SetupError, match="does not say how tools are called: it leaves the calls") as told:
        Suffixes.of(made, [made.eos_token_id], "tool", "builtin:tiny", has_calls=True)
    assert "model.chat_template" in str(told.value.hint)
