"""Which part of a batch is at hand, what it is divided by, and batches that do not divide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.arithmetic import Batching, batching
from grpo_cli.recipe.reading.load import load
from grpo_cli.train.updates import MiniBatches, reshuffled
from tests.builders.loss_bench import recipe, table_loss, trainer

NAN = float("nan")


def test_a_mini_batch_is_divided_by_the_tokens_of_an_average_one() -> None:
    built = trainer(micro_batches=2, mini_batches=2)
    assert (built.mini.count, built.args.gradient_accumulation_steps, built.args.steps_per_generation) == (2, 1, 2)
    built.current_gradient_accumulation_steps = 1
    A = torch.tensor([1.0, -1.0], dtype=torch.float64)
    losses = []
    for lengths in ((2, 4), (3, 1)):
        logps = torch.tensor([[-1.0] * n + [NAN] * (4 - n) for n in lengths], dtype=torch.float64)
        losses.append(float(table_loss(built, logps, A, num_items_in_batch=torch.tensor(10))))
    assert losses == pytest.approx([0.4, -0.4])  # by their own tokens .333333 and -.5


def test_a_pass_begins_where_all_mini_batches_of_the_last_are_done() -> None:
    mini = MiniBatches(count=2, epochs=3, micro=4)
    assert mini.updates == 6
    assert {step: mini.further_pass(step) for step in range(49) if mini.further_pass(step)} == {
        8: 1,
        16: 2,
        32: 1,
        40: 2,
    }
    assert not any(MiniBatches(count=1, epochs=3, micro=4).further_pass(step) for step in range(30))


def rows(*alive: bool) -> list[dict[str, Any]]:
    return [
        {
            "advantages": torch.tensor([0.0, float(one)]),
            "sample": torch.arange(2),
            "completion_mask": torch.ones(2, 3, dtype=torch.int64),
        }
        for one in alive
    ]


def test_only_a_mini_batch_that_is_dead_on_all_ranks_is_passed_over() -> None:
    mini, model = MiniBatches(count=2, epochs=1, micro=2), torch.nn.Linear(1, 1)
    mini.find_empty(rows(False, False, False, True), lambda n: n)
    model.weight.grad = torch.ones(1, 1)
    assert not mini.skips_update(4, model) and model.weight.grad is not None
    assert mini.skips_update(2, model) and model.weight.grad is None
    assert mini.metrics() == {"updates/empty": 1} and mini.metrics() == {"updates/empty": 0}
    mini.find_empty(
        rows(False, False, False, True), lambda counts: [max(n, 1) for n in counts]
    )  # another rank has a row
    assert not mini.skips_update(2, model)


def test_what_teaches_is_an_advantage_on_a_token_that_counts() -> None:
    mini, model = MiniBatches(count=1, epochs=2, micro=1), torch.nn.Linear(1, 1)
    (batch,) = rows(True)

    def passes(**changes: torch.Tensor) -> bool:
        mini.find_empty([batch | changes], lambda n: n)
        return mini.skips_update(1, model) and mini.skips_update(2, model)

    assert not passes()
    cut = torch.tensor([[1, 1, 1], [0, 0, 0]])
    assert passes(completion_mask=cut)
    per_token = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.5, 0.0]])
    assert not passes(advantages=per_token)
    assert passes(advantages=per_token, tool_mask=torch.tensor([[1, 1, 1], [1, 0, 1]]))
    assert mini.metrics() == {"updates/empty": 4}


def test_rows_are_dealt_out_anew_by_a_chance_of_their_own() -> None:
    batches = [{"sample": torch.arange(4), "completion_mask": torch.ones(4, 2)} for _ in range(2)]
    batches[1]["sample"] = torch.arange(4, 8)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again = reshuffled(batches, 1), reshuffled(batches, 1)
    assert torch.equal(before, torch.get_rng_state())
    found = [one["sample"].tolist() for one in first]
    assert found == [one["sample"].tolist() for one in again] and sorted(row for one in found for row in one) == list(
        range(8)
    )
    assert found != [one["sample"].tolist() for one in reshuffled(batches, 2)]


def test_the_micro_batch_divides_a_mini_batch() -> None:
    made = recipe(mini_batches=2)
    assert batching(made, 4) == Batching(2, 1, 2)
    with pytest.raises(RecipeError, match="2 completions on each of 2 processes do not divide into 4"):
        batching(recipe(mini_batches=4), 4, world=2)


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        (["train.mini_batches=3"], "does not divide 64 completions a step"),
        (["train.mini_batches=4", "sample.micro_batch=32"], "does not divide a mini-batch of 16"),
        (["train.mini_batches=2", "launch.strategy=fsdp2", "launch.cpu_ranks=2"], "was not tried"),
    ],
)
def test_batches_that_do_not_divide_are_refused(tmp_path: Path, sets: list[str], part: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        'model: builtin:tiny\ndata: {train: "tasks:addition3", prompt: "{question}", answer: "{answer}"}\n'
        "verify: {math: {}}\ntrain: {steps: 10}\n"
    )
    with pytest.raises(RecipeError) as err:
        load(file, sets)
    assert part in str(err.value)
