"""`train.method: sft`: the recipe's `sft` phases as a run of their own, measured before and after.

Its optimizers are not saved: a run that is killed in a phase begins it anew, and ends with the same weights, since chance
depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpo_cli.data.rows import Row
from grpo_cli.policy.ban import lifted
from grpo_cli.policy.coldstart import demonstrations, plan_of
from grpo_cli.policy.warmup import Phase, schedule, supervise
from grpo_cli.recipe.sections.recipe import WarmupPhase
from grpo_cli.train.prefer.rounds import RoundSetup, RoundTrainer

if TYPE_CHECKING:
    pass


class SupervisedTrainer(RoundTrainer):
    """All phases are one stretch to what surrounds them; each of its steps has its line in `metrics.jsonl`."""

    def __init__(self, setup: RoundSetup, phases: Sequence[tuple[WarmupPhase, Sequence[Row]]]) -> None:
        super().__init__(setup)
        self.policy, self.phases = setup.policy, phases

    def _step(self) -> dict[str, Any]:
        policy, seed = self.policy, self.loop.recipe.train.seed
        pad_id = policy.tokenizer.pad_token_id
        assert pad_id is not None  # `prepare_tokenizer` gave it one
        last: dict[str, Any] = {}
        encoded: dict[int, list[int]] = {}
        for i, (phase, rows) in enumerate(self.phases):
            shown, plan = demonstrations(policy, phase, rows, seed + i, encoded), plan_of(phase)

            # bound as defaults: a closure would see the last phase's
            def note(step: int, loss: float, plan: Phase = plan, count: int = len(shown)) -> None:
                last.clear()
                rate = plan.lr * schedule(step - 1, plan)
                last.update(self._record({"loss": loss, "lr": rate, "sft/demonstrations": count}))

            # a demonstration may say what samples must not
            with lifted(policy.model):
                supervise(policy.model, shown, plan, seed=seed + i, pad_id=pad_id, on_step=note)
        return last
