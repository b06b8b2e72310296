"""Whether a run fits a card, how long it takes and what it costs: the sums of `memory` and `duration` as sentences.

The peak of a step's memory is what is held, the cache, and one forward and backward pass. What a pass keeps for its gradients is
counted layer by layer as the packed update runs (`train/packed`, `rollout/fused/update`), for blocks of Llama's kind: norms keep
their input, projections theirs, attention its own, a gated MLP both of its halves. In numbers of a token and layer, with width d,
query width q, key width k, MLP width f:

    all weights trained   4 d + 2 q + 2 k + 3 f
    adapters              7 d + 3 q + 2 k + 3 f: each projection's own copy of its input, and of frozen weights none

Measured on one H200 (bf16, 32 x 8 x 256, micro-batches of 64 and 16): 13.2 GiB at 135M where this gives 13.0, and 41.3 at 7B with
adapters where it gives 41.3. What a block of another kind keeps is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpo_cli.errors import UsageError
from grpo_cli.policy.loading.sizes import ModelSizes
from grpo_cli.recipe.arithmetic import BatchPlan
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.sizing import duration as time
from grpo_cli.sizing.cards import Gpus, cards_here, read_cards
from grpo_cli.sizing.duration import Duration, StepCost, duration
from grpo_cli.sizing.work import HALF, TokenLengths, Work, held, trained
from grpo_cli.text import Json

GIB = 1 << 30
CACHE_SHARE = 0.6
"""Of the free memory, at most this much becomes cache (`rollout/graph/memory`)."""
KEPT_LOGITS = 3 << 30
"""Bytes of logits up to which the packed update keeps them (`train/packed/head`)."""
STRETCH = (1 << 27) * HALF
"""Bytes of logits it makes at once beyond that."""
PADDED_LOGITS = 2
"""Times that the logits of a padded pass lie in memory: themselves and their gradient."""
OUTSIDE = 0.7 * GIB
"""What the driver takes in addition to torch: context and kernels."""
KEPT = 0.5
"""Share of a pass that captured graphs and the allocator hold in addition to all that is counted: reserved by torch were 39.4 GiB at 1.5B
where this gives 43.8, 33.4 with uneven lengths (33.5), 16.0 at 135M (17.9), 36.1 at 7B with adapters (40.3)."""
ERROR = 0.15
"""Half the width of the interval given, as a share: predictions against measurement on one H200."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one card by what they are; `pool` is what captured graphs keep beside them."""

    parts: dict[str, float]
    pool: float
    cache_rows: int

    @property
    def peak(self) -> float:
        """All that is held at once. torch counts less, `memory/peak_gib` of a run, where a graph was captured before the optimizer
        had its state: what a graph works in counts while it is captured only."""
        return sum(self.parts.values())

    @property
    def needed(self) -> float:
        """What a card must have, the driver's part too; captured graphs are given up where they do not fit."""
        return self.peak + OUTSIDE

    @property
    def wanted(self) -> float:
        """What it takes with its graphs."""
        return self.needed + self.pool


def memory(work: Work, card_bytes: float, measured: int | None = None) -> Memory:
    """The peak of a step on a card of `card_bytes`; `measured` are the bytes of a pass, where one was made."""
    found = held(work.recipe, work.sizes, work.world)
    free = max(0.0, card_bytes - OUTSIDE - sum(found.values()))
    rows = 0
    if work.recipe.sample.engine_kind.through_trl:
        vllm = work.recipe.sample.vllm
        if vllm.get("mode", "colocate") == "colocate":
            found["vLLM's share"] = card_bytes * float(vllm.get("gpu_memory_utilization", 0.3))
    else:
        rows = work.cache_rows(free * CACHE_SHARE)
        found["cache of a rollout"] = rows * work.row_bytes
    own = pass_bytes(work, work.micro) if measured is None else {"a pass, measured here": float(measured)}
    return Memory(found | own, KEPT * sum(own.values()) if work.is_packed else 0.0, rows)


def pass_bytes(work: Work, micro: int) -> dict[str, float]:
    """Bytes of one forward and backward pass over `micro` full-length completions."""
    sizes, own = work.sizes, trained(work.recipe.model, work.sizes)
    tokens = work.pass_tokens(micro)
    layer = layer_bytes(work, micro) * tokens
    layers = sizes.layers * layer
    if work.recomputes:
        layers = sizes.layers * tokens * sizes.hidden * HALF + layer
    logits: float = micro * work.recipe.sample.max_tokens * sizes.vocab * HALF
    if not work.is_packed:
        logits *= PADDED_LOGITS
    elif (logits := logits * 1.02) > KEPT_LOGITS:
        logits = STRETCH
    found = {"activations": layers, "logits": logits}
    if not own.is_half:
        found["weights cast for a pass"] = (sizes.body_parameters + sizes.head_parameters) * HALF
    if own.rank is None:  # of embeddings and head, made whole before they are added to what is there
        found["gradients under way"] = 2 * sizes.head_parameters * own.width
    return found


def layer_bytes(work: Work, micro: int) -> float:
    """What one token leaves of one layer for the backward pass."""
    sizes, own = work.sizes, trained(work.recipe.model, work.sizes)
    d, q, k, f = sizes.hidden, sizes.attention_width, sizes.kv_width, sizes.intermediate
    keys = 1.0
    if work.is_packed:  # a prompt's keys stand next to those of each of its completions
        keys = micro * (work.lengths.longest_prompt + work.recipe.sample.max_tokens) / work.pass_tokens(micro)
    numbers = 2 * q + 2 * k * keys
    numbers += (4 * d + 3 * f) if own.rank is None else (2 * d + (5 * d + q + f) + 2 * f)
    wider = 0 if own.is_half else 2 * d  # the stream between layers is float32, and its norms keep it
    softmax = 4 * sizes.heads
    return (numbers + wider) * HALF + softmax


Answer = Literal["fits", "without graphs", "tight", "does not fit"]


@dataclass(frozen=True, slots=True)
class CardQuestion:
    """The cards that a person asks about, and what one costs an hour."""

    cards: Gpus
    price: float | None = None


@dataclass(frozen=True)
class Fit:
    """The answer for `world` cards."""

    ask: CardQuestion
    world: int
    work: Work
    memory: Memory
    duration: Duration
    micro: int | None
    """The largest smaller micro-batch that would fit, where this one does not."""
    held_out: int = 0
    step_cost: StepCost | None = None

    @property
    def answer(self) -> Answer:
        """Within the error of the sum it may still not fit: `tight`."""
        has = self.ask.cards.card.memory * GIB
        if self.memory.needed > has:
            return "does not fit"
        if self.memory.needed * (1 + ERROR) > has:
            return "tight"
        return "fits" if self.memory.wanted <= has else "without graphs"

    @property
    def hours(self) -> tuple[float, float, float]:
        """Of the whole run: least, likely, most."""
        likely, error = self.duration.run / 3600, self.duration.error
        return likely / (1 + error), likely, likely * (1 + error)

    @property
    def cost(self) -> tuple[float, float, float] | None:
        """Of all cards for these hours, in the unit of the price; None without one."""
        price = self.ask.price
        if price is None:
            return None
        least, likely, most = (hours * self.world * price for hours in self.hours)
        return least, likely, most

    def message(self) -> str:
        """One sentence."""
        card, peak = self.ask.cards.card, self.memory.needed
        said = {
            "fits": f"fits {self.named}",
            "without graphs": f"fits {self.named}, most likely without CUDA graphs for the update, which is slower",
            "tight": f"may or may not fit {self.named}",
            "does not fit": f"does not fit {self.named}",
        }[self.answer]
        least, likely, most = self.hours
        hours = f"{likely:.3g} hours ({least:.3g} to {most:.3g})"
        if most < 1.5:
            hours = f"{likely * 60:.2g} minutes ({least * 60:.2g} to {most * 60:.2g})"
        found = f"{said}: about {peak / GIB:.3g} of {card.memory:.3g} GiB a card; {hours}"
        if self.cost is not None:
            least, likely, most = self.cost
            found += (
                f", cost {_money(likely)} ({_money(least)} to {_money(most)}) at {self.ask.price:g} a card and hour"
            )
        return found

    @property
    def named(self) -> str:
        """The cards in words."""
        card = self.ask.cards.card.name
        return f"one {card}" if self.world == 1 else f"{self.world} x {card}"

    def hint(self) -> str:
        """What helps where it does not fit, or may not."""
        if self.answer in ("fits", "without graphs"):
            return ""
        helps = [f"`sample.micro_batch: {self.micro}`"] if self.micro is not None else []
        if self.work.recipe.model.lora is None:
            helps.append("`model.lora`")
        if self.work.recipe.launch.strategy == "ddp":
            helps.append("more cards with `launch.strategy: fsdp2`")
        return ", or ".join([*helps, "a shorter `sample.max_tokens`"])

    def lines(self) -> list[str]:
        """The parts of the sum, and what it takes for granted."""
        parts = [f"{size / GIB:7.2f} GiB  {name}" for name, size in self.memory.parts.items() if size >= GIB / 200]
        pool = self.memory.pool / GIB
        graphs = f"; CUDA graphs of the update keep {pool:.3g} GiB more where there is room" if pool else ""
        d = self.duration
        step = f"a step {d.step:.3g} s = {d.generate:.3g} generate + {d.update:.3g} update + {d.other:.2g} other"
        return [
            *parts,
            f"{OUTSIDE / GIB:7.2f} GiB  driver{graphs}",
            f"{step}; {self.work.plan.steps:,} steps, micro-batches of {self.work.micro}",
            f"{self.taken}; memory ±{ERROR:.0%}, time x/÷ {1 + d.error:.3g}",
            *self.unknown(),
        ]

    @property
    def taken(self) -> str:
        """What the sum takes for granted of lengths and speed."""
        lengths, recipe = self.work.lengths, self.work.recipe
        full = lengths.completion >= recipe.sample.max_tokens
        said = (
            "every completion taken at `sample.max_tokens`"
            if full
            else f"completions of {lengths.completion:.0f} tokens in the mean; memory for full-length ones"
        )
        if self.step_cost is not None:
            return f"{said}; a rollout and a pass were measured here"
        speed = "" if self.ask.cards.card.name in time.MEASURED else ", at the share of its rate measured on an H200"
        return said + speed

    def unknown(self) -> list[str]:
        """What is not counted."""
        recipe, found = self.work.recipe, []
        if (
            (critic := recipe.train.critic) is not None
            and "critic" in self.memory.parts
            and not self.memory.parts["critic"]
        ):
            found.append(f"the critic `{critic.source}`, whose size is not known here")
        if recipe.data.eval is not None and not self.held_out:
            found.append("evaluations")
        if self.world > 1:
            found.append("the traffic between cards")
        if recipe.environment is not None:
            found.append("the environment and its turns")
        if recipe.sample.engine_kind.through_trl:
            found.append("vLLM's own speed")
        if any(spec.kind in ("model", "reward_model") for spec in recipe.verify.values()):
            found.append("reward models")
        return [f"not counted: {', '.join(found)}, and verifiers that are slow"] if found else []

    def as_json(self) -> dict[str, Json]:
        """The same for `--json`; sizes in bytes, times in seconds and hours."""
        found: dict[str, Json] = {
            "gpu": self.ask.cards.card.name,
            "gpus": self.world,
            "answer": self.answer,
            "memory_bytes": {name: round(size) for name, size in self.memory.parts.items()},
            "peak_bytes": round(self.memory.peak),
            "needed_bytes": round(self.memory.needed),
            "wanted_bytes": round(self.memory.wanted),
            "card_bytes": round(self.ask.cards.card.memory * GIB),
            "memory_error": ERROR,
            "measured": self.step_cost is not None,
            "micro_batch": self.work.micro,
            "micro_batch_that_fits": self.micro,
            "step_seconds": {
                "generate": self.duration.generate,
                "update": self.duration.update,
                "other": self.duration.other,
            },
            "hours": dict(zip(("least", "likely", "most"), self.hours, strict=True)),
        }
        if self.cost is not None:
            found["price"] = self.ask.price
            found["cost"] = dict(zip(("least", "likely", "most"), self.cost, strict=True))
        return found


def fit(
    recipe: Recipe,
    sizes: ModelSizes,
    plan: BatchPlan,
    lengths: TokenLengths,
    ask: CardQuestion,
    held_out: int = 0,
    measure: Callable[[Work], StepCost | None] | None = None,
) -> Fit:
    """The answer for a recipe.

    Args:
        recipe: what would run.
        sizes: of its model, whose blocks are of Llama's kind.
        plan: its batches.
        lengths: tokens of prompts and completions.
        ask: cards and price.
        held_out: rows that each evaluation measures.
        measure: a step on such a card, where there is one.

    Raises:
        UsageError: another number of cards is asked about than the recipe launches.
    """
    world = cards_of(recipe, ask.cards)
    work = Work(recipe, sizes, plan, lengths, world)
    has = ask.cards.card.memory * GIB
    cost = measure(work) if measure is not None else None
    needs = memory(work, has, cost.pass_bytes if cost is not None else None)
    took = duration(work, ask.cards.card, needs.cache_rows, -(-held_out // world), cost)
    found = Fit(ask, world, work, needs, took, None, held_out, cost)
    if found.answer in ("does not fit", "tight"):
        # the largest micro-batch below the recipe's whose peak the card can hold
        holds = has / (1 + ERROR)
        rest = memory(work, holds).needed - sum(pass_bytes(work, work.micro).values())
        smaller = (size for size in range(work.micro - 1, 0, -1) if work.rows % size == 0)
        micro = next((n for n in smaller if rest + sum(pass_bytes(work, n).values()) <= holds), None)
        found = replace(found, micro=micro)
    return found


def ask_of(gpu: str | None, price: float | None) -> CardQuestion | None:
    """What a person asks with `--gpu` and `--price`; without a name the cards of this machine, None where it has none.

    Raises:
        UsageError: no such card, no card to put the price on, or a price that is none.
    """
    if price is not None and not 0 <= price < float("inf"):
        raise UsageError(f"`{price:g}` is no price", place="--price", hint="what one card costs an hour, such as 2.5")
    cards = read_cards(gpu) if gpu is not None else cards_here()
    if cards is not None:
        return CardQuestion(cards, price)
    if price is not None:
        raise UsageError("a price of which card?", place="--price", hint="name it: `--gpu h100`")
    return None


def cards_of(recipe: Recipe, cards: Gpus) -> int:
    """Processes, one a card: as asked, else as the recipe launches; `auto` is one where the number is not known.

    Raises:
        UsageError: the two contradict each other.
    """
    launch = recipe.launch
    asked = cards.count
    if launch.gpus == "auto":
        world = (asked or 1) if launch.nodes == 1 else launch.nodes * (asked or 1)
        completions = recipe.sample.prompts * recipe.sample.group
        while completions % world:
            world -= 1
        return world
    world = launch.gpus * launch.nodes
    if asked is not None and not cards.is_here and asked != world:
        raise UsageError(
            f"`launch.gpus` and `launch.nodes` come to {world}, not {asked}",
            place="--gpu",
            hint="name the card alone, or set `launch.gpus`",
        )
    return world


def unfit(recipe: Recipe, sizes: ModelSizes) -> str | None:
    """Why there is no sum for this recipe; None where there is one."""
    if recipe.train.method != "rl":
        return f"the sums are those of `train.method: rl`, not of `{recipe.train.method}`"
    if sizes.experts:
        return "the sums are for blocks that every token goes through, and this model has experts"
    return None


def lengths_of(
    counts: Sequence[int], max_tokens: int, completion: float | None = None, longest: int | None = None
) -> TokenLengths:
    """TokenLengths by the prompts that were counted; completions at their limit where none were drawn."""
    counts = sorted(counts) or [0]
    high = counts[min(len(counts) - 1, int(0.95 * len(counts)))]
    mean = max_tokens if completion is None else max(1.0, completion)
    return TokenLengths(sum(counts) / len(counts), high, mean, max(round(mean), longest or max_tokens))


def _money(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
