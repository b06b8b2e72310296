"""Whether a run fits a card, how long it takes and what it costs: the sums of `memory` and `duration` as sentences.

The peak of a step's memory is what is held, and the cache and one forward and backward pass (`work.py` counts all three). A cache that
is larger than what is free beside it is given back before the update: then the larger of both counts.
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
from grpo_cli.sizing.work import GIB, OUTSIDE, TokenLengths, Work, held, pass_bytes
from grpo_cli.text import Json

CACHE_SHARE = 0.6
"""Of the free memory, at most this much becomes cache (`rollout/graph/memory`)."""
RETURNED = "given back before the update"
KEPT = 0.3
"""Share of a full-length pass that captured graphs and the allocator hold in addition to all that is counted."""
PROMPT = 256
"""Tokens that a prompt is taken to have where no rows are known."""
ERROR = 0.10
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


def memory(work: Work, measured: int | None = None) -> Memory:
    """The peak of a step; `measured` are the bytes of a pass, where one was made."""
    found, has = held(work), work.card.memory * GIB
    free = max(0.0, has - OUTSIDE - sum(found.values()))
    own = pass_bytes(work) if measured is None else {"a pass, measured here": float(measured)}
    rows = 0
    if work.recipe.sample.engine_kind.through_trl:
        vllm = work.recipe.sample.vllm
        if vllm.get("mode", "colocate") == "colocate":
            found["vLLM's share"] = has * float(vllm.get("gpu_memory_utilization", 0.3))
    else:
        rows = work.cache_rows(free * CACHE_SHARE)
        found["cache of a rollout"] = cache = float(rows * work.row_bytes)
        if cache > free - cache:
            own[RETURNED] = -min(cache, sum(own.values()))
    return Memory(found | own, KEPT * sum(pass_bytes(work).values()) if work.is_captured else 0.0, rows)


MEASURED_KINDS = ("", "llama", "qwen2", "qwen3", "mistral", "smollm3")
"""Types of models whose blocks are those of the sums."""
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
    def holds(self) -> bool:
        """Whether it fits, with captured graphs or without."""
        return self.answer in ("fits", "without graphs")

    @property
    def errors(self) -> str:
        """How far memory and time may be off."""
        return f"memory ±{ERROR:.0%}, time x/÷ {1 + self.duration.error:.3g}"

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
            f"{self.taken}; {self.errors}",
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
        if self.work.sizes.kind not in MEASURED_KINDS:
            found.append(f"what blocks of `{self.work.sizes.kind}` do otherwise than Llama's")
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
    work = Work(recipe, sizes, plan, lengths, ask.cards.card, world)
    cost = measure(work) if measure is not None else None
    needs = memory(work, cost.pass_bytes if cost is not None else None)
    took = duration(work, needs.cache_rows, -(-held_out // world), cost)
    found = Fit(ask, world, work, needs, took, None, held_out, cost)
    if found.answer in ("does not fit", "tight"):
        # the largest micro-batch below the recipe's whose peak the card can hold
        holds = work.card.memory * GIB / (1 + ERROR)
        smaller = (size for size in range(work.micro - 1, 0, -1) if work.rows % size == 0)
        found = replace(
            found, micro=next((n for n in smaller if memory(work.with_sample(micro_batch=n)).needed <= holds), None)
        )
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
