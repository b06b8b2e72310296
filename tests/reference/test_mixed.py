"""Mixed inputs (`sample.mix`) through the trainer, beside float64 passes over single answers whose inputs are put together by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_cli.rollout.engine import Completion
from grpo_cli.train import trainer
from tests.reference.case import Case
from tests.reference.compare import _answers, _loss, _micro, apart
from tests.reference.drive import recipe_of, run_here, write_world
from tests.reference.formulas import group_advantages
from tests.reference.policy import Plain, Said


class Mixed(Plain):
    """The model where the inputs behind some tokens of an answer are means over rows of the embeddings, as they were drawn."""

    drawn: dict[int, Completion]

    def tokens(self, said: Said) -> tuple[Tensor, Tensor]:
        embed = self.model.get_input_embeddings()
        table = embed.weight
        # the module gives a pad token's own row no gradient
        inputs = list(embed(torch.tensor([*said.prompt, *said.answer])))
        for one in self.drawn[id(said)].mixtures:
            parts = [w * table[member] for member, w in zip(one.members, one.weights, strict=True)]
            inputs[len(said.prompt) + one.at] = torch.stack(parts).sum(0)
        logits = self.model(inputs_embeds=torch.stack(inputs)[None], use_cache=False).logits[0]
        logps = (logits[len(said.prompt) - 1 : -1] / self.temperature).log_softmax(-1)
        own = said.own
        entropies = -(logps.exp() * logps).sum(-1)
        return logps.gather(1, torch.tensor(said.answer)[:, None])[own, 0], entropies[own]


@pytest.mark.parametrize(
    ("written", "micro", "train"),
    [
        ("sampled", 20, {}),
        ("sampled", 4, {"kl": {"beta": 0.2, "estimator": "k3_corrected"}, "dead_groups": "keep"}),
        ("anchor", 4, {}),
    ],
)
def test_every_gradient_is_that_of_the_inputs_that_were_drawn(
    written: str, micro: int, train: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_world(tmp_path)
    batches, made = list[list[Completion]](), trainer.batch_mixtures

    def watched(completions: list[Completion], *rest: Any) -> Any:
        batches.append(list(completions))
        return made(completions, *rest)

    monkeypatch.setattr(trainer, "batch_mixtures", watched)
    mix = {"rate": 0.4, "neighbours": 3, "until": "", "written": written}
    changes: dict[str, Any] = {
        "train": {"steps": 2, "inner_epochs": 2} | train,
        "sample": {"micro_batch": micro, "mix": mix},
    }
    recipe = recipe_of(tmp_path, "mixed", changes)
    seen = run_here(recipe, tmp_path)
    case, model, worst = Case.of(recipe), Mixed(seen.config), 0.0
    start, forced = seen.updates[0].weights, 0
    for batch, said in enumerate(seen.said):
        model.drawn = {id(one): completion for one, completion in zip(said, batches[batch], strict=True)}
        assert sum(len(c.mixtures) for c in batches[batch]) > 20
        forced += sum(one.is_forced for c in batches[batch] for one in c.mixtures)
        updates = [u for u in seen.updates if u.batch == batch]
        old, ref = model.take(updates[0].weights).logps(said), model.take(start).logps(said)
        rewards = [float("nan") if r["reward"] is None else r["reward"] for r in seen.records[batch]]
        whole = group_advantages([rewards[i : i + 4] for i in range(0, 20, 4)], case.method)
        flat = [a for group in whole for a in group]
        advantages = [[a] * len(one.own) for a, one in zip(flat, said, strict=True)]
        for at, update in enumerate(updates):
            answers = _answers(model.take(update.weights), said, old, ref, advantages, [False] * 20, case)
            want = model.gradient(_loss(answers, _micro([seen], batch, at), case.method, 1))
            worst = max(worst, apart(update.gradients, want))
    assert bool(forced) == (written == "anchor")
    assert worst <= 2e-6, worst
