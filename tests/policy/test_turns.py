"""The ids between two turns: a suffix of what the template renders, and no template that rewrites what was said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trl
from transformers import PreTrainedTokenizerFast

from grpo_cli.environments.tools.calls import turn_with_calls
from grpo_cli.errors import SetupError
from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.policy.tiny import byte_level
from grpo_cli.policy.turns import TurnSuffixes

LINES = (
    "{%- for m in messages -%}<|{{ m.role if m.role in ('user', 'assistant', 'system') else 'user' }}|>"
    "{{ m.content }}<|end|>\n{% endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""Every message closed by itself, with a line end behind the token that ends a turn."""
QWEN_25 = (
    "{%- for m in messages -%}{%- if m.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}<|user|>{%- endif -%}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}<|end|>\n{%- endif -%}"
    "{%- else -%}<|{{ m.role }}|>{{ m.content }}"
    "{%- for call in m.tool_calls or [] -%}{{ '\n<tool_call>\n' }}"
    "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}{{ '\n</tool_call>' }}{%- endfor -%}"
    "<|end|>{{ '\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""As Qwen 2.5 has it: results stand in a turn of the user, and no thought is known."""
QWEN_3 = (
    "{%- set last = namespace(at=0) -%}{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.at = loop.index0 -%}"
    "{%- endif -%}{%- endfor -%}"
    + QWEN_25.replace(
        "<|{{ m.role }}|>{{ m.content }}",
        "<|{{ m.role }}|>"
        "{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip() if '</think>' in m.content else '' -%}"
        "{%- if m.role == 'assistant' and loop.index0 > last.at and (loop.last or thought) -%}"
        "{{ '<think>\n' ~ thought ~ '\n</think>\n\n' }}{%- endif -%}"
        "{{ m.content.split('</think>')[-1].lstrip() }}",
    )
)
"""As Qwen 3 has it: thoughts behind the last question are kept, a last turn without one gets an empty one."""
QWEN_3_SILENT = QWEN_3.removesuffix("{%- endif -%}") + "{{ '<think>\n\n</think>\n\n' }}{%- endif -%}"
"""The same told not to think: every turn is opened with an empty thought, which earlier turns do not have."""
LLAMA_3 = (
    "{%- for m in messages -%}<|{{ 'user' if m.role == 'tool' else m.role }}|>"
    "{%- if m.tool_calls -%}{{ {'name': m.tool_calls[0].function.name, 'parameters': m.tool_calls[0].function.arguments} | tojson }}"
    "{%- elif m.role == 'tool' -%}{{ m.content | tojson }}{%- else -%}{{ m.content | trim }}{%- endif -%}<|end|>"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""As Llama 3.1 has it: a turn with a call is the call alone."""
STRIPS = LINES.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1].strip() }}")
"""Takes every thought out, that of the last turn too."""
DEAF = LINES.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}")
"""Shows a tool's result without its words."""
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


def suffixes(template: str, role: Any = "user") -> TurnSuffixes:
    made = tokenizer(template)
    return TurnSuffixes.of(made, [made.eos_token_id], role, "tiny/made")


def test_the_embedded_model_puts_the_observation_between_the_roles() -> None:
    made = byte_tokenizer()
    end = made.eos_token_id
    found = TurnSuffixes.of(made, [end], "user", "builtin:tiny")
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


RESULT = (("look", "seen"),)


def said_and_seen(template: str, said: str, *, calls: bool, role: Any) -> tuple[list[int], list[int]]:
    """The ids of a conversation as an episode grows it, and as the template renders it."""
    made: Any = tokenizer(template)
    found = TurnSuffixes.of(made, [made.eos_token_id], role, "tiny/made", has_calls=calls)
    user = {"role": "user", "content": "go"}
    turn = turn_with_calls(["look"], {}, "" if said.startswith("{") else said.split("\n<tool_call>")[0])
    spoken: dict[str, Any] = turn if calls else {"role": "assistant", "content": said}
    seen = {"role": role, "name": "look", "content": "seen"}
    opened = made.apply_chat_template([user], add_generation_prompt=True, return_dict=False)
    whole = made.apply_chat_template([user, spoken, seen, spoken, seen], add_generation_prompt=True, return_dict=False)
    ids = [*made(said).input_ids, made.eos_token_id]
    suffix = found(RESULT if calls else "seen", made.eos_token_id)
    return [*opened, *ids, *suffix, *ids, *suffix], whole


CALL = '\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
BARE = '{"name": "look", "parameters": {}}'


@pytest.mark.parametrize(
    ("template", "said", "calls", "role"),
    [
        (QWEN_25, "ok", False, "user"),
        (QWEN_25, "<think>\nhm\n</think>\n\nok", False, "tool"),
        (QWEN_25, "ok" + CALL, True, "tool"),
        (QWEN_3, "ok", False, "tool"),
        (QWEN_3, "<think>\nhm\n</think>\n\nok", False, "tool"),
        (QWEN_3, "ok" + CALL, True, "tool"),
        (QWEN_3, "<think>\nhm\n</think>\n\nok" + CALL, True, "tool"),
        (LLAMA_3, "ok", False, "user"),
        (LLAMA_3, BARE, True, "tool"),
    ],
)
def test_an_episode_grows_into_what_the_template_renders(template: str, said: str, calls: bool, role: str) -> None:
    grown, rendered = said_and_seen(template, said, calls=calls, role=role)
    assert grown == rendered


@pytest.mark.parametrize(
    ("template", "role", "calls", "said", "hint"),
    [
        (QWEN_3, "user", False, "takes thoughts out of earlier turns", "environment.role: tool"),
        (QWEN_3_SILENT, "tool", False, "does not keep what was said before", "renders every message by itself"),
        (QWEN_3_SILENT, "tool", True, "does not keep what was said before", "qwen3_training.jinja"),
        (STRIPS, "user", False, "takes thoughts out of earlier turns", "environment.role: tool"),
        (DEAF, "tool", False, "leaves out what a `tool` message says", "environment.role: user"),
    ],
)
def test_what_would_render_otherwise_than_it_was_said_is_refused(
    template: str, role: Any, calls: bool, said: str, hint: str
) -> None:
    made = tokenizer(template)
    with pytest.raises(SetupError) as err:
        TurnSuffixes.of(made, [made.eos_token_id], role, "tiny/made", has_calls=calls)
    assert said in str(err.value)
    assert hint in err.value.hint


def test_the_token_behind_a_whole_conversation_is_not_the_one_that_closes_a_turn() -> None:
    inner = byte_level()
    inner.add_special_tokens(["<|stop|>"])
    template = FORGETS.replace("endfor -%}", "endfor -%}{%- if not add_generation_prompt -%}<|stop|>{%- endif -%}")
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|stop|>", chat_template=template.replace("not loop.last", "false")
    )
    end, stop = made.convert_tokens_to_ids(["<|end|>", "<|stop|>"])
    found = TurnSuffixes.of(made, [end, stop], "user", "tiny/made")
    assert found.closing == end
    assert made.decode(found("seen", end)) == "<|user|>seen<|end|><|assistant|>"


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
    found = TurnSuffixes.of(made, [made.eos_token_id], "tool", name, has_calls=True)
    results = [("add", "5"), ("look", "at 3")][: 1 if name == "llama3_1" else 2]
    theirs = SimpleNamespace(
        _is_vlm=False, processing_class=made, _tokenizer=made, chat_template=template, chat_template_kwargs={}
    )
    messages = [{"role": "tool", "name": tool, "content": text} for tool, text in results]
    wanted = trl.GRPOTrainer._get_tool_suffix_ids(theirs, messages)  # type: ignore[arg-type]
    assert found(tuple(results), made.eos_token_id) == wanted
    assert "at 3" in made.decode(wanted) or len(results) == 1


def test_a_template_that_shows_no_calls_is_refused_with_the_mend() -> None:
    made = byte_tokenizer()
    with pytest.raises(SetupError, match="does not say how tools are called: it leaves the calls") as told:
        TurnSuffixes.of(made, [made.eos_token_id], "tool", "builtin:tiny", has_calls=True)
    assert "model.chat_template" in str(told.value.hint)
