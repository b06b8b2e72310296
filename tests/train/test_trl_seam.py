"""What the seam leans on in TRL 1.16 and transformers' trainer beneath it, by name: a new TRL is read against this list.

Methods are pinned with their parameters by `trl_config.HOOKED`; here are the attributes, and what order they are used in.
"""

from __future__ import annotations

import inspect
import re

import pytest
import transformers
import trl
from trl import GRPOTrainer

from grpo_cli.train import trl_config
from grpo_cli.train.trainer import Trainer
from tests.builders.loss_bench import trainer

TRL = "1.16."

SET_WHEN_MADE = [
    *("_buffered_inputs", "_metrics", "_step", "_entropy_bonus_enabled", "accelerator", "args", "beta"),
    *("importance_sampling_level", "max_completion_length", "model", "num_generations", "num_iterations"),
    *("state", "temperature", "use_vllm"),
]
SET_WHILE_TRAINING = ["_tr_loss", "current_gradient_accumulation_steps"]


def test_the_installed_trl_is_the_one_this_was_read_against() -> None:
    assert trl.__version__.startswith(TRL)
    trl_config.check_hooks()


@pytest.mark.parametrize("name", SET_WHEN_MADE)
def test_an_attribute_is_trls_and_there(name: str) -> None:
    assert hasattr(trainer(), name)
    assert name not in vars(Trainer)


@pytest.mark.parametrize("name", SET_WHILE_TRAINING)
def test_an_attribute_of_the_loop_is_set_by_transformers(name: str) -> None:
    source = inspect.getsource(transformers.Trainer)
    assert re.search(rf"self\.{name} = ", source)


def test_metrics_are_lists_by_mode_and_name() -> None:
    built = trainer()
    built._metrics["train"]["x"].append(1.0)
    assert built._metrics["train"]["x"] == [1.0]


def test_log_probs_are_asked_for_in_one_method_that_the_seam_answers() -> None:
    for method in (GRPOTrainer._compute_loss, GRPOTrainer._generate_and_score_completions):
        assert "self._get_per_token_logps_and_entropies(" in inspect.getsource(method)
    assert "_get_per_token_logps_and_entropies" in vars(Trainer)


def test_the_log_probs_come_before_the_old_ones_are_looked_up() -> None:
    """GSPO-token puts its own in their place as soon as it has seen the policy's."""
    source = inspect.getsource(GRPOTrainer._compute_loss)
    assert source.index("_get_per_token_logps_and_entropies") < source.index('"old_per_token_logps"')


def test_the_buffer_is_filled_by_generation_and_read_by_the_micro_step() -> None:
    source = inspect.getsource(GRPOTrainer._prepare_inputs)
    assert "self._buffered_inputs = " in source
    assert "self._buffered_inputs[self._step % self.args.steps_per_generation]" in source
