"""The sections `sample`, `train` and `prefer`: how completions are drawn and what is learned from them.

How this works: each class is a section of the recipe and each field a key, with its range in its type and its meaning below it.
`train.algorithm` names a preset (`recipe.widening`), which fills the keys of the method that are left out. The fields of TRL that
act on every row stand at the end, because they decide which rows a step may leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from grpo_cli.recipe.engines import ENGINES, EngineKind
from grpo_cli.recipe.sections.fields import (
    MANY,
    ONE,
    Above0,
    Count,
    Least0,
    ModelName,
    Section,
    Share,
    Whole,
    Words,
    one_of,
)
from grpo_cli.recipe.sections.inputs import Model, Source

if TYPE_CHECKING:
    pass

Loss = Literal["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo", "gmpo"]
Estimator = Literal["k1_loss", "k1_reward", "k1_token", "k2", "k3", "k3_corrected"]
Recompute = Literal["no", "selective", "full"]
Preference = Literal["dpo", "ipo", "irpo", "kto", "orpo", "simpo"]
Algorithm = Literal[
    "default", "grpo", "grpo_k1", "dr_grpo", "dapo", "gspo", "gspo_token", "cispo", "sapo", "rloo", "reinforce_pp", "gigpo", "ppo",
    "max_rl", "dppo", "gmpo", "gdpo", "pass_k", "opo", "otb", "vespo", "luspo",
]  # fmt: skip

if TYPE_CHECKING:
    EngineName = str
else:
    # a choice of the table's names, which a type checker cannot read
    EngineName = Literal[tuple(ENGINES)]


class MixSpec(Section):
    """Some steps put a mean of the likeliest token's embedding and its neighbours' into the model. See `grpo explain n_grpo`."""

    rate: Share = 0.1
    """Share of the steps that are mixed; 0 is plain sampling. Raising it makes samples differ more, and less like the policy's own."""
    neighbours: Annotated[int, Field(ge=2)] = 2
    """Embeddings that are mixed, the likeliest token's own among them."""
    until: str = "</think>"
    """The text behind which nothing is mixed any more; an empty one mixes to the end."""
    written: Literal["sampled", "anchor"] = "sampled"
    """The token of a mixed step in the text: the one that was drawn, or the likeliest one, which is then left out of the loss."""


class Sample(Section):
    """How completions are drawn. A step draws `prompts` x `group` completions."""

    prompts: Whole = 8
    """Prompts a step. Raising it makes steps steadier and longer."""
    group: Whole = 8
    """Completions of each prompt, 1 with a critic only. Raising it finds rare right answers and costs time in proportion."""
    max_tokens: Whole = 512
    """Longest completion; what is cut there counts as truncated."""
    temperature: Above0 = 1.0
    """Spread of sampling. Raising it explores more and makes more errors."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the likeliest tokens of this mass; below 1 training is off-policy."""
    top_k: Count = 0
    """Sample from this many likeliest tokens; 0 is all. Above 0 training is off-policy."""
    min_p: Share = 0.0
    """Leave out tokens less likely than this share of the likeliest; above 0 training is off-policy."""
    repetition_penalty: Above0 = 1.0
    """Make repeated tokens less likely; other than 1 training is off-policy."""
    stop: list[Words] = Field(default_factory=list)
    """Texts that end a completion. The token that completes one is its last, and it counts as whole, not as truncated."""
    ban: list[Words] = Field(default_factory=list)
    """Tokens that are never drawn, each by its text. Training scores without them too, so it stays on-policy."""
    mix: MixSpec | None = None
    """Mixed inputs in some steps of training samples; left out, and in evaluation, none. See `grpo explain n_grpo`."""
    engine: EngineName = "auto"
    """Who generates; `auto` takes graph where it can drive the model, else transformers. vllm must be asked for."""
    micro_batch: Whole | None = None
    """Completions in one forward and backward; left out, all at once on a CPU and found on a GPU."""
    off_policy_ok: bool = False
    """Train on truncated sampling all the same."""
    vllm: dict[str, Any] = Field(default_factory=dict)
    """Settings of vllm: `mode: colocate | server` and what TRL calls `vllm_NAME`."""

    @property
    def mixed(self) -> int:
        """How many embeddings go into a mixed step; 0 where no step is mixed."""
        return self.mix.neighbours if self.mix is not None and self.mix.rate else 0

    @property
    def engine_kind(self) -> EngineKind:
        """What the engine can do."""
        return ENGINES[self.engine]

    @property
    def is_served(self) -> bool:
        """Whether a server outside of this process generates."""
        return self.engine_kind.through_trl and self.vllm.get("mode") == "server"

    @property
    def started_context(self) -> int | None:
        """Tokens of prompt and completion that the engine is started for; None: as many as the model takes."""
        return self.vllm.get("max_model_length") if self.engine_kind.through_trl else None


class Clip(Section):
    """Trust region of the probability ratio: [1 - low, 1 + high]."""

    low: Least0 = 0.2
    """How far the ratio may fall before its gradient is cut."""
    high: Least0 = 0.28
    """How far it may rise. Raising it lets rare tokens grow faster."""
    cap: Above0 | None = None
    """`loss: cispo` only: the absolute cap of the ratio (TRL's convention, not 1 + high)."""
    delta: Above0 | None = None
    """`ratio_clip: tv` or `kl` only: how far a token's distribution may move; left out, 0.2 for `tv` and 0.05 for `kl`."""
    pull: Least0 = 0.0
    """`ratio_clip: tv` or `kl` only: weight of the squared log ratio of every token, beside its advantage."""


class Kl(Section):
    """Pull towards the model the run started from."""

    beta: Least0 = 0.0
    """Strength; 0 needs no reference model. Raising it keeps the policy near its start."""
    estimator: Estimator = "k3_corrected"
    """Which estimate is penalised; `k1_loss` has no pull in expectation and is here for comparison;
    `k1_token` is taken off each token's reward, with a critic only."""


class Prune(Section):
    """Train on part of each group. Saves update time where updates, not generation, take longest."""

    keep: Annotated[int, Field(ge=2)]
    """Samples of each group that are trained on."""
    by: Literal["variance", "advantage"] = "advantage"
    """`advantage` keeps the largest (CPPO); `variance` the most varied rewards, and compares only those (PODS)."""


class TurnCredit(Section):
    """What each turn of an episode, or each part of an answer, is worth beside its own advantage. See `grpo explain gigpo`."""

    method: Literal["gigpo", "milestones", "planner", "rredcot"]
    """`gigpo` compares turns that saw the same state, `milestones` segments between milestones, `planner` subgoals; `rredcot` weighs
    the lines of a thinking by how much each raises the chance of the right answer."""
    weight: Least0 = 1.0
    """How much the part of the turns counts beside the episode's; 0 leaves the episode's alone."""
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    """Discount a turn; left out, 0.95 for `gigpo` and 0.9 for `milestones`."""
    norm: Literal["mean", "std"] | None = None
    """What the part of the turns is divided by: nothing (`mean`), or the deviation of those compared (`std`). It has to be what the
    episode's own advantage is divided by; left out, it follows `train.scale`."""
    over: Literal["episodes", "steps"] = "episodes"
    """Whether an episode counts once in the mean of its group, or as often as it has turns (as verl-agent does)."""
    similarity: Share | None = None
    """`gigpo` only: states this much alike are one; left out, equal ones are."""
    reward: Above0 = 1.0
    """`milestones` only: what a milestone is worth. Above the outcome's own, farming milestones would beat success."""
    order: list[str] = Field(default_factory=list)
    """`milestones` only: the names that count, in this order; left out, all in the order in which they are reached."""
    patterns: dict[str, str] = Field(default_factory=dict)
    """`milestones` only, for answers of one turn: a regular expression for each name, found where the milestone is reached."""
    use: Literal["weight", "value"] = "weight"
    """`rredcot` only: `weight` divides the answer's own advantage among its segments, and never turns its sign; `value` takes what each
    segment gained instead, less the group's mean of the segment of that number."""
    segments: Whole = 8
    """`rredcot` only: most segments of an answer. Lines are put together where the model is surest of how the next begins."""
    force: Words = "</think>\\boxed{"
    """`rredcot` only: the text behind a cut after which the answer is expected; brackets that it opens are closed behind the answer."""
    answers: Literal["gold+right", "gold"] = "gold+right"
    """`rredcot` only: the spellings whose chances are added up: the gold's, or also those of right answers in the group."""
    plan: str = "first"
    """`planner` only: `first` takes the first turn for the plan, any other text ends the plan at the start of a turn."""


class Ramp(Section):
    """A weight that moves in a straight line from one value to another, and stays there."""

    begin: Least0 = Field(alias="from")
    """Its value in the first step."""
    to: Least0
    """Its value from then on."""
    steps: Whole
    """Steps until it is reached."""


class SplitPart(Section):
    """One part of the advantage: verifiers whose scores are compared within a group by themselves."""

    verifiers: Annotated[list[Words], Field(min_length=1)]
    """Those whose scores it sums. Each verifier stands in one part; the first part is the reward, shaping included, and a verifier
    of a further part has weight 0 in it."""
    weight: Annotated[
        Annotated[Least0, Tag(ONE)] | Annotated[Ramp, Tag(MANY)],
        Discriminator(lambda value: MANY if isinstance(value, dict | Ramp) else ONE),
    ] = 1.0
    """Factor of the part in the advantage, a number or a mapping of `from`, `to` and `steps`; a factor on its scores would cancel."""

    def at(self, step: int) -> float:
        """The weight in step `step`, counted from 0."""
        if not isinstance(self.weight, Ramp):
            return self.weight
        ramp = self.weight
        return ramp.begin + (ramp.to - ramp.begin) * min(step / ramp.steps, 1.0)


class Prefer(Section):
    """Learning from pairs of a right and a wrong answer, with `train.method: prefer`. See `grpo explain prefer`."""

    data: Source | None = None
    """A file as `grpo pairs` writes it, learned from instead of newly drawn samples: a step goes `epochs` times over it. Left out,
    a step draws samples and makes pairs of them."""
    loss: Preference = "dpo"
    """Which loss, see `grpo explain NAME`. `kto` takes single answers, the others pairs."""
    beta: Above0 | None = None
    """Strength of the pull to the model that drew the pairs (`simpo`, `orpo`: of the preference); left out, 0.1, with `simpo` 2."""
    gamma: Least0 | None = None
    """`loss: simpo` only: the margin by which winners must be ahead; left out, 0.5."""
    sft: Least0 | None = None
    """Weight of a loss on the winners' own tokens beside `dpo`, `ipo` and `irpo`; left out, 0, with `irpo` 1."""
    epochs: Whole = 1
    """Passes over the pairs of a step. Raising it learns more from the same samples, and moves further from them."""
    batch: Annotated[int, Field(ge=2)] = 32
    """Pairs of an update (`kto`: answers). Pairs that do not fill a last one are left out."""
    micro_batch: Whole | None = None
    """Pairs in one forward and backward; left out, all at once on a CPU and found on a GPU."""
    pairs_a_row: Whole = 4
    """Most pairs of one row, where a step makes them: easy rows do not crowd out hard ones."""
    length_gap: Share = 0.2
    """How far the lengths of a pair may differ, as a share of the longer one. Raising it gives more pairs and teaches length."""


OWN_TEACHERS = ("reason", "sibling", "gold", "prompt")
"""Teachers that are the policy itself behind another prompt."""


class Distil(Section):
    """Learning from a teacher's distribution over the tokens that the model has sampled, with `train.method: distil`. See `grpo explain
    distil`."""

    teacher: Annotated[list[ModelName], Field(min_length=1)] = Field(default_factory=lambda: ["sibling", "reason"])
    """What the teacher sees beside the prompt: the `reason` of the verdict, a right `sibling` of the group, the `gold`, nothing
    (`prompt`); of a list the first that a sample has. Any other word is a model by name or folder, which sees the prompt alone."""
    when: Literal["dead", "wrong", "all"] = "dead"
    """Whose samples have a teacher: those that are not right in groups without signal, all that are not right, or all."""
    weights: Literal["live", "ema", "base"] = "ema"
    """The weights of a teacher that is the policy itself: those of the step, a running average of them, or those of the start."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.05
    """`weights: ema` only: share of the new weights in the average of a step; 0.05 has a half-life of 13.5 steps."""
    loss: Literal["sampled", "topk"] = "sampled"
    """What is compared: the probability of each sampled token, as an advantage, or the `k` likeliest tokens of each place."""
    k: Whole = 20
    """`loss: topk` only: tokens that are compared one by one; all others are one more."""
    direction: Literal["reverse", "forward", "jsd"] = "reverse"
    """The divergence: of the policy from the teacher, of the teacher from the policy (`loss: topk`), or half of both from their mean."""
    mix: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Weight of the teacher; the sample's own advantage has the rest, in groups with a teacher and, with `when` other than `dead`, in all."""
    contrast: bool = False
    """Subtract what a wrong hint changes: another row's `gold`, a wrong `sibling`. Costs a second pass of the teacher."""
    template: Words = "{hint}\n\n{prompt}"
    """The teacher's prompt. `{hint}` is what it sees more, `{prompt}` the last message of the row."""

    def model(self, policy: Model) -> Model | None:
        """What another model that teaches is loaded by; None where the policy teaches itself."""
        if self.teacher[0] in OWN_TEACHERS:
            return None
        here = {"path": self.teacher[0], "lora": None, "base": None, "gguf_file": None, "revision": None}
        return policy.model_copy(update=here)


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


class AdsSpec(Section):
    """Options of `select: ads`. See `grpo explain ads`."""

    active: Whole = 4
    """Clusters that a step draws from; each gives `sample.prompts` / `active` rows, the width of its window. Fewer make steps of
    rows more like each other."""
    clusters: Whole | None = None
    """Clusters; left out, one for every 64 rows, at most 64. More are purer and leave a window less way to go."""
    reset: Whole | None = None
    """Steps after which all windows go back to the easiest rows; left out, never. The authors do so at each pass over the data.
    Too few, and no window ever gets to the harder rows of its cluster."""


class Train(Section):
    """The method. `algorithm` fills every key of the method that is not said beside it."""

    method: Literal["rl", "distil", "prefer", "sft"] = "rl"
    """What is learned from: `rl` from the advantages of a step's verified samples, `distil` also from a teacher of them, `prefer` from
    pairs of them, `sft` from the demonstrations of `sft`, whose phases say the steps."""
    algorithm: Algorithm = "default"
    """A named method of `rl`, see `grpo explain NAME`."""
    steps: Count = 0
    """Steps: each draws `sample.prompts` x `sample.group` completions and learns from them in `inner_epochs` x
    `mini_batches` optimizer steps (with `method: prefer`, `prefer.epochs` times over their pairs: a step is a round). Left out,
    as many as `epochs` take."""
    epochs: Above0 | None = None
    """Instead of `steps`: how often the training rows are gone through, as many steps as they fill each time."""
    lr: Above0
    """Learning rate at its highest; left out, 1e-6, or 1e-5 with `model.lora`."""
    lr_warmup_steps: Count | None = None
    """Steps over which the rate rises from 0, so that the first update moves no weight, as with transformers; left out, none."""
    schedule: Literal["linear", "constant", "cosine"] = "linear"
    """How the rate falls after that."""
    max_grad_norm: Above0 = 1.0
    """Longest gradient; longer ones are scaled down."""
    mini_batches: Whole = 1
    """Optimizer steps that a pass over a batch is divided into. Above 1 all but the first are off-policy, as further passes
    are; each pass deals the completions out anew."""
    inner_epochs: Whole = 1
    """Passes over each batch of completions. Above 1 the ratio and its clip begin to matter."""
    loss: Loss = "dapo"
    """Over what the token losses are averaged (TRL's names)."""
    ratio: Literal["token", "sequence", "sequence_token"] = "token"
    """Level of the importance ratio: each token, the whole answer (GSPO), or GSPO-token."""
    baseline: Literal["mean", "leave_one_out", "critic", "pass_k", "length", "token"] = "mean"
    """What is subtracted from a reward: the mean of its group, of the others in it, or a critic's value of each token; the mean by
    `length` of the samples (OPO), or by the gradient that their tokens have had so far (`token`). `pass_k` pays the best of `pass_k`."""
    pass_k: Whole | None = None
    """`baseline: pass_k` only: samples of which the best counts."""
    scale: Literal["group", "batch", "mean", "none"] = "group"
    """Whose standard deviation divides the advantages; `mean` divides by the group's mean reward (MaxRL)."""
    std_ddof: Literal[0, 1] = 1
    """1 divides the variance by G - 1, 0 by G."""
    std_floor: Annotated[Above0 | Literal["noise"], one_of("above 0, or `noise`")] = 1e-6
    """A spread of rewards below this is none: the advantages are exactly 0. `noise` measures it before the first step, by scoring
    the same answers twice: for judges, who score an answer otherwise each time."""
    clip: Clip = Clip()
    ratio_clip: Literal["ratio", "tv", "kl"] = "ratio"
    """What bounds an update where a batch is used more than once: the `ratio` itself, or (DPPO) whether the token's probability moved
    by `clip.delta`, as a difference (`tv`) or as a divergence (`kl`). It masks what goes further, and lets rare tokens grow."""
    kl: Kl = Kl()
    alive_by: Annotated[
        Literal["outcome", "reward"] | Annotated[list[Words], Field(min_length=1)],
        one_of("`outcome`, `reward` or a list of verifiers"),
    ] = "outcome"
    """What has to differ in a group before anything paid beside it counts there: the `outcome` (the primary verifier's score), the
    whole `reward`, or what these verifiers pay together. By `reward` a group that is all wrong trains on its form alone."""
    dead_groups: Literal["keep", "drop", "resample"] = "drop"
    """Groups whose rewards are all equal: train on them, leave them out, or draw others instead."""
    resample_rounds: Count = 8
    """`dead_groups: resample` only: most further draws a step. What is missing then is filled with dead groups."""
    prune: Prune | None = None
    """Leave samples of each group out of the update; left out, all are trained on."""
    credit: TurnCredit | None = None
    """Credit for the turns of an episode: `gigpo`, `milestones`, `planner`, for the lines of a thinking: `rredcot`, or a mapping with
    `method`; left out, one advantage for all of a completion."""
    select: Literal["uniform", "auto", "greso", "mopps", "priority", "screen", "easy_to_hard", "ads"] = "uniform"
    """Which rows are drawn: each once an epoch, or by their history. See `grpo explain NAME`."""
    ads: AdsSpec | None = None
    """Options of `select: ads`."""
    ads_ok: bool = False
    """Take `select: ads` also where its windows cannot move far: with fewer than 2,000 rows, or early resets."""
    overlong: Annotated[float, Field(gt=0, le=1)] | None = None
    """DAPO's soft penalty, from 0 to -1 over this last share of `sample.max_tokens`; left out, none."""
    mask_truncated: bool = False
    """Leave truncated completions out of the loss."""
    reward_combine: Literal["sum", "normalise_then_sum", "split"] = "sum"
    """Sum weighted scores, normalise each verifier's within the group first, or normalise each part of `split` within the group."""
    split: dict[str, SplitPart] = Field(default_factory=dict)
    """`reward_combine: split` only: the parts of the advantage by name. See `grpo explain split`."""
    critic: CriticSpec | None = None
    """The critic of `baseline: critic`; left out, there is none."""
    control: Literal["random", "shuffled", "format_only"] | None = None
    """A placebo arm: a coin, the group's rewards dealt out anew, or a reward for any readable answer. Verdicts stay true."""
    recompute: Recompute = "no"
    """What the backward pass makes again instead of keeping it: nothing, all of a layer but its attention (`selective`), or whole
    layers (`full`). Each needs less memory than the one before it and takes longer; gradients stay the same."""
    offload: Literal["no", "activations"] = "no"
    """Where what is kept for the backward pass waits: on the device, or as `activations` in the host's memory (GPU only)."""
    seed: Count = 0
    """Seed of sampling, order and adapters."""
    trl: dict[str, Any] = Field(default_factory=dict)
    """Any other field of TRL's `GRPOConfig`, by its own name."""

    @property
    def recomputes(self) -> Recompute:
        """`recompute`, also where it is asked for by TRL's name. With `gradient_checkpointing_kwargs` it stays TRL's own."""
        asked = self.trl.get("gradient_checkpointing") and not self.trl.get("gradient_checkpointing_kwargs")
        return "full" if asked else self.recompute

    @property
    def turn_norm(self) -> Literal["mean", "std"]:
        """What the part of the turns is divided by: where the recipe leaves it open, what the episode's own advantage is."""
        said = self.credit.norm if self.credit else None
        return said or ("mean" if self.scale == "none" else "std")

    @property
    def runs_grpo(self) -> bool:
        """Whether GRPO's trainer runs, with its losses and advantages."""
        return self.method in ("rl", "distil")

    @property
    def mask_delta(self) -> float:
        """How far a token may move before `ratio_clip` masks it; 0 where the ratio is clipped."""
        return 0.0 if self.ratio_clip == "ratio" else self.clip.delta or {"tv": 0.2, "kl": 0.05}[self.ratio_clip]

    @property
    def pulls_every_row(self) -> bool:
        """Whether DPPO's pull has a gradient: where a batch is used once, every log ratio is 0."""
        return self.ratio_clip != "ratio" and self.clip.pull > 0 and self.updates > 1

    @property
    def updates(self) -> int:
        """Optimizer steps on each batch."""
        return self.inner_epochs * self.mini_batches

    @property
    def floor(self) -> float:
        """`std_floor`, a number.

        Raises:
            ValueError: it is that of the noise, which nobody has measured.
        """
        if self.std_floor == "noise":
            raise ValueError("`train.std_floor: noise` is measured by `grpo train`; say a number here")
        return self.std_floor


ROUTER = "router_aux_loss_coef"

NEUTRAL = {"entropy_coef": 0, "use_adaptive_entropy": False, "top_entropy_quantile": 1, ROUTER: 0}
"""The value of each of them with which it does nothing. Left out they are that, also the router's: a model's own coefficient
counts only where it is asked for with null."""

WHOLE_ONLY = ("use_adaptive_entropy", "top_entropy_quantile")
"""Exact only where a step is one micro-batch. The plain entropy bonus is made exact; the router's loss is by definition
one of the rows that go through the model together."""


def acts_on_every_row(trl: Mapping[str, Any]) -> list[str]:
    """Those that do something in this `train.trl`."""
    # null is the model's own coefficient, which only the router has
    given = {name: trl.get(name, neutral) for name, neutral in NEUTRAL.items()}
    return [name for name, value in given.items() if (name == ROUTER if value is None else value != NEUTRAL[name])]


def whole_only(trl: Mapping[str, Any]) -> list[str]:
    """Those that do something there and want a step in one micro-batch."""
    return [name for name in acts_on_every_row(trl) if name in WHOLE_ONLY]
