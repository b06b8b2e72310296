"""`train.trl` against the real GRPOConfig: the table must be what the installed TRL says."""

import pytest

from grpo_cli.recipe.checking import other_names
from grpo_cli.recipe.checking.values import MODES, check_trl
from tests.recipe.checking import write_trl_table
from tests.recipe.checking.write_trl_table import real_choices, real_table


def test_the_table_is_what_the_installed_trl_says() -> None:
    assert real_table() == other_names.FIELDS
    assert real_choices() == other_names.CHOICES
    assert write_trl_table.text() == write_trl_table.TABLE.read_text()


def test_every_field_we_own_is_a_field_of_trl() -> None:
    assert set(other_names.OURS) | set(other_names.ALWAYS) <= set(other_names.FIELDS)


def test_free_fields_pass_and_a_number_may_be_whole_where_trl_wants_a_float() -> None:
    fields = {"weight_decay": 0, "lr_scheduler_type": "cosine_with_min_lr", "optim": "adafactor", "delta": None}
    assert check_trl({"train": {"trl": fields}}) == []


def test_a_field_of_ours_is_refused_with_our_key() -> None:
    (found,) = check_trl({"train": {"trl": {"num_generations": 4}}})
    assert found.hint == "say `sample.group`"


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("generation_kwargs", {"stop_strings": ["</s>"]}, "`sample.stop`"),
        ("generation_kwargs", {"stop": ["x"], "max_new_tokens": 9}, "`sample.stop` and `sample.max_tokens`"),
        ("generation_kwargs", {"suppress_tokens": [3], "top_p": 0.9}, "`sample.ban` and `sample.top_p`"),
        ("generation_kwargs", {"penalty_alpha": 0.6}, "`sample`"),
        ("generation_kwargs", {}, "`sample`"),
        ("model_init_kwargs", {"attn_implementation": "sdpa"}, "`model.attention`"),
        ("model_init_kwargs", {"dtype": "bfloat16", "revision": "x"}, "`model`"),
    ],
)
def test_a_mapping_of_trls_is_refused_with_the_keys_of_what_it_holds(field: str, value: object, key: str) -> None:
    (found,) = check_trl({"train": {"trl": {field: value}}})
    assert found.hint == f"say {key}"


def test_names_types_and_choices_are_checked() -> None:
    fields = {"weight_deca": 0.1, "adam_beta1": "x", "optim": "adamw_torhc", "disable_dropout": 1}
    found = check_trl({"train": {"trl": fields}})
    assert [f.hint for f in found] == ["did you mean `weight_decay`?", "", "did you mean `adamw_torch`?", ""]
    assert "must be a number" in found[1].message and "`true` or `false`" in found[3].message


def test_log_levels_are_those_of_transformers_and_numbers_are_finite() -> None:
    from transformers.training_args import trainer_log_levels

    assert set(MODES["log_level"]) == set(trainer_log_levels)
    fields = {"log_level": "wraning", "entropy_coef": float("nan"), "delta": float("inf"), "log_level_replica": ""}
    found = check_trl({"train": {"trl": fields}})
    assert found[0].hint == "did you mean `warning`?" and "one of debug, info" in found[3].hint
    assert [f.path[-1] for f in found if "must be a finite number" in f.message] == ["entropy_coef", "delta"]


def test_vllm_settings_are_trl_fields_without_their_prefix() -> None:
    assert check_trl({"sample": {"vllm": {"mode": "colocate", "gpu_memory_utilization": 0.5}}}) == []
    (found,) = check_trl({"sample": {"vllm": {"gpu_memory": 0.5}}})
    assert found.at_key


def test_a_vllm_server_is_named_in_a_way_trl_understands() -> None:
    def hints(**vllm: str) -> list[str]:
        return [found.hint for found in check_trl({"sample": {"vllm": vllm}})]

    assert hints(mode="server", server_base_url="https://host:8000/v") == []
    assert hints(mode="serve", server_base_url="host:8000") == [
        "did you mean `server`?",
        "it begins with http:// or https://",
    ]


def test_a_number_of_processes_that_no_machine_starts_is_refused() -> None:
    found = check_trl({"train": {"trl": {"dataloader_num_workers": 10**12, "max_steps": 10**12}}})
    assert "`train.trl.dataloader_num_workers` is a number of processes: at most 1,024" in [f.message for f in found]
    assert check_trl({"train": {"trl": {"dataloader_num_workers": 1_024}}}) == []
