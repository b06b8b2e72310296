"""The section `train.critic`: a model of the value of what was said so far, beside the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from grpo_cli.recipe.sections.fields import Above0, Count, Least0, ModelName, Section, Share, Whole, one_of

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.inputs import Model


class CriticSpec(Section):
    """Who says what an unfinished answer is worth, and how it learns to. See `grpo explain ppo`."""

    source: ModelName = Field(default="policy", alias="from")
    """What it starts as: `policy` a copy of the policy (its adapter, with `model.lora`), else a model by name or folder."""
    share: bool = False
    """Take a head on the policy's own last hidden state, which it does not change, in place of a copy: next to no memory."""
    lr: Above0 | None = None
    """Its learning rate, constant; left out, ten times `train.lr`."""
    decay: Annotated[Share | Literal["adaptive"], one_of("a number from 0 to 1, or `adaptive`")] = Field(
        default=0.95, alias="lambda"
    )
    """How far ahead advantages look: 0 one token (little noise, all bias), 1 to the end. `adaptive` is VAPO's, longer for
    longer answers, with returns to the end for the critic."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount a token."""
    cut: Literal["outcome", "value"] = "outcome"
    """What an answer cut at `max_tokens` comes to: its own reward, or in its place the value of where it was cut."""
    clip: Above0 = 0.5
    """How far a value may move from what it was when the batch was drawn, before its gradient is cut: in standard deviations of
    the returns, a running average, which the critic learns in."""
    warmup_steps: Count | None = None
    """Steps in which only the critic learns; left out, 20, but no more than a tenth of the run. Too few, and the policy learns
    from values that say nothing."""
    epochs: Whole = 1
    """Passes of the critic over each batch."""
    mini_batches: Whole = 4
    """Updates of the critic a pass."""
    positive: Least0 = 0.0
    """VAPO's weight of imitating right answers, beside the advantages; 0 leaves it out, .1 is theirs."""

    def model(self, policy: Model) -> Model | None:
        """What another model that it starts from is loaded by, beside the policy's section; None for the policy's own."""
        if self.source == "policy":
            return None
        here = {"path": self.source, "lora": None, "base": None, "gguf_file": None, "revision": None}
        return policy.model_copy(update=here)
