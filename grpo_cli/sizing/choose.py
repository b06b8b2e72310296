"""Which settings fit a card: the first of a row of ways to train, from all weights to adapters on weights in 4 bits.

How this works: `RUNGS` are the ways, the best first. `choose` tries each with the largest micro-batch that the card holds, on a step of 64
completions, and returns the first that fits with a micro-batch of `LEAST` or more; the last way is taken with any. It is a pure function
of recipe, sizes and card: `grpo init --gpu` writes what it returns, `grpo check` hints at it, and the table in the docs lists it.
All weights in bfloat16 are no way of their own: such weights swallow small updates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from grpo_cli.policy.loading.sizes import ModelSizes
from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD, plan
from grpo_cli.recipe.sections.course import keeps_whole
from grpo_cli.recipe.sections.inputs import Lora
from grpo_cli.recipe.sections.method import Recompute
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.sizing.cards import CARDS, Gpu, Gpus
from grpo_cli.sizing.fit import PROMPT, CardQuestion, Fit, fit, lengths_of
from grpo_cli.sizing.work import GIB, OFFERED_IN_4BIT, Work, adapter_rank, in_4bit

Mode = Literal["full", "LoRA", "4-bit"]
Rung = tuple[Mode, Recompute]
RUNGS: tuple[Rung, ...] = (
    ("full", "no"),
    ("LoRA", "no"),
    ("LoRA", "selective"),
    ("4-bit", "no"),
    ("4-bit", "selective"),
    ("4-bit", "full"),
)
"""What is trained, and `train.recompute`."""
WORDS = {"full": "all weights", "LoRA": "a LoRA", "4-bit": "a LoRA on weights in 4 bits"}
RATES = {"full": 1e-6, "LoRA": 1e-5, "4-bit": 1e-5}
PROMPTS, GROUP = 8, 8
"""Prompts of a step, and samples of each."""
TOKENS = (1024, 512)
"""Tokens of an answer that are tried, where the model's context has room for them."""
LEAST = 4
"""Smaller micro-batches leave a card idle: before them the next way is tried."""
SHARE = 0.9
"""Of the card, what a run may need by the sum, which may be off."""
FEWEST = 16
"""Completions that must decode at once."""
RANK = 16


@dataclass(frozen=True)
class Settings:
    """A way that fits, the sum of a run under it, and the ways before it with the GiB that they need at `LEAST`."""

    rung: Rung
    fit: Fit
    refused: list[tuple[Rung, float]]

    def keys(self) -> dict[str, str]:
        """The keys that say it in a recipe, dotted, with their values as YAML."""
        (mode, recompute), recipe = self.rung, self.fit.work.recipe
        lora = recipe.model.lora
        found = {"model.lora": f"{{r: {lora.r}}}"} if lora is not None else {}
        found |= {"model.load_in_4bit": "true"} if mode == "4-bit" and recipe.model.load_in_4bit else {}
        found |= {"train.recompute": recompute} if recompute != "no" else {}
        return found | {"sample.micro_batch": str(recipe.sample.micro_batch)}

    def lines(self) -> list[str]:
        """What was chosen, whether it fits and how long it takes, and why it was not what came before."""
        sample = self.fit.work.recipe.sample
        said = f"{in_words(self.rung)}, micro-batches of {sample.micro_batch}, answers of at most {sample.max_tokens:,} tokens"
        why = "; ".join(f"{in_words(rung)} {gib:,.0f}" for rung, gib in self.refused)
        return [
            f"settings: {said}",
            f"  {self.fit.message()}",
            f"  {self.fit.errors}; prompts taken at {self.fit.work.lengths.longest_prompt} tokens",
            *([f"  not taken, GiB in micro-batches of {LEAST}: {why}"] if why else []),
        ]


def in_words(rung: Rung) -> str:
    """`a LoRA with recompute: selective`."""
    mode, recompute = rung
    return WORDS[mode] + ("" if recompute == "no" else f" with recompute: {recompute}")


def choose(
    recipe: Recipe,
    sizes: ModelSizes,
    cards: Gpus,
    rows: int,
    tokens: Sequence[int] = TOKENS,
    rungs: Sequence[Rung] = RUNGS,
    held_out: int = 0,
) -> Settings | None:
    """The first way that fits, for steps of 64 completions; None where none does.

    Args:
        recipe: what it is for.
        sizes: of its model.
        cards: of one kind.
        rows: training rows.
        tokens: limits of an answer to try, the best first; more than the context leaves beside a prompt becomes that.
        rungs: ways to try, the best first.
        held_out: rows that each evaluation measures.

    Raises:
        UsageError: the recipe launches another number of cards.
        DataError: the rows fill no step.
    """
    room = (sizes.context or PROMPT + max(tokens)) - PROMPT
    for limit in dict.fromkeys(min(one, room) for one in tokens):
        sample = {"prompts": PROMPTS, "group": GROUP, "max_tokens": limit}
        one = recipe.model_copy(update={"sample": recipe.sample.model_copy(update=sample)})
        work = fit(one, sizes, plan(one, rows), lengths_of([PROMPT], limit), CardQuestion(cards)).work
        if (found := fitting(work, cards, rungs, held_out)) is not None:
            return found
    return None


def fitting(work: Work, cards: Gpus, rungs: Sequence[Rung], held_out: int = 0) -> Settings | None:
    """The first way that fits with the work's own step and lengths, and its largest micro-batch; None where none does."""
    refused: list[tuple[Rung, float]] = []
    longest = work.lengths.longest_prompt + work.recipe.sample.max_tokens
    for rung in rungs:
        if not _goes_with(work.recipe, rung):
            continue
        least = 1 if rung == rungs[-1] else min(LEAST, work.rows)
        sized = [n for n in range(work.rows, 0, -1) if work.rows % n == 0 and n * longest <= GPU_TOKENS_A_FORWARD]
        for micro in [n for n in sized if n >= least] or sized[:1] or [1]:
            one = _under(work.recipe, rung, micro)
            found = fit(one, work.sizes, work.plan, work.lengths, CardQuestion(cards), held_out)
            room = SHARE * work.card.memory * GIB
            if found.memory.needed <= room and found.memory.cache_rows >= min(FEWEST, work.rows):
                return Settings(rung, found, refused)
        refused.append((rung, found.memory.needed / GIB))
    return None


def hint_of(found: Fit) -> str:
    """What helps where a run does not fit, or may not."""
    if found.holds:
        return ""
    recipe = found.work.recipe
    mode: Mode = "full" if adapter_rank(recipe.model) is None else "4-bit" if in_4bit(recipe.model) else "LoRA"
    helps = [f"`sample.micro_batch: {found.micro}`"] if found.micro is not None else []
    own: list[Rung] = [(mode, again) for again in get_args(Recompute)]
    later = [rung for rung in RUNGS[RUNGS.index((mode, "no")) :] if rung not in own]
    if (other := fitting(found.work, found.ask.cards, own + later)) is not None:
        there = Settings((mode, recipe.train.recompute), found, []).keys()
        keys = [f"`{name}: {value}`" for name, value in other.keys().items() if there.get(name) != value]
        helps.append(" with ".join(filter(None, [", ".join(keys[:-1]), keys[-1]])))
    elif mode == "full":
        helps.append("`model.lora`")
    if recipe.launch.strategy == "ddp":
        helps.append("more cards with `launch.strategy: fsdp2`")
    return ", or ".join([*dict.fromkeys(helps), "a shorter `sample.max_tokens`"])


def smallest_card(recipe: Recipe, sizes: ModelSizes, rows: int) -> Gpu | None:
    """The card with the least memory that some way fits."""
    by_memory = sorted(CARDS, key=lambda card: card.memory)
    return next((card for card in by_memory if choose(recipe, sizes, Gpus(card), rows) is not None), None)


def _goes_with(recipe: Recipe, rung: Rung) -> bool:
    """Whether a recipe may train so: a model offered in 4 bits, a GGUF file and sharded weights leave fewer ways."""
    (mode, recompute), model = rung, recipe.model
    if model.path.endswith(OFFERED_IN_4BIT):
        return mode == "4-bit"
    is_gguf = model.gguf_file is not None or model.path.endswith(".gguf") or model.path.startswith("builtin:")
    shards = not keeps_whole(recipe.launch.strategy)
    return not (mode == "4-bit" and (is_gguf or shards)) and not (recompute == "selective" and shards)


def _under(recipe: Recipe, rung: Rung, micro: int) -> Recipe:
    (mode, recompute), model = rung, recipe.model
    said: dict[str, Any] = {"lora": None, "load_in_4bit": False}
    if mode != "full":
        is_asked = mode == "4-bit" and not model.path.endswith(OFFERED_IN_4BIT)
        is_adapted = adapter_rank(model) is not None
        said = {"lora": model.lora if is_adapted else Lora(r=RANK), "load_in_4bit": is_asked}
    changed = {
        "model": model.model_copy(update=said),
        "sample": recipe.sample.model_copy(update={"micro_batch": micro}),
        "train": recipe.train.model_copy(update={"recompute": recompute, "lr": RATES[mode]}),
    }
    return recipe.model_copy(update=changed)


PLACES = {
    "model": re.compile(r"^model: \S+\n", re.M),
    "prompts": re.compile(r"^  prompts: .*\n", re.M),
    "max_tokens": re.compile(r"^  max_tokens: \d+\n", re.M),
    "lr": re.compile(r"^  lr: \S+\n", re.M),
}
"""Lines of a starter's recipe that settings are written into."""


def write_into(text: str, chosen: Settings) -> str:
    """A starter's recipe with the settings in the places that it has for them; its comments stay."""
    recipe, keys, card = chosen.fit.work.recipe, chosen.keys(), chosen.fit.named

    def line(key: str, value: object, why: str) -> str:
        return f"{f'  {key}: {value}':<35} # {why}\n"

    model = line("lora", keys["model.lora"], "adapters: all weights would not fit") if "model.lora" in keys else ""
    if "model.load_in_4bit" in keys:
        model += line("load_in_4bit", "true", "the weights below them in 4 bits, which needs bitsandbytes")
    train = line("lr", f"{recipe.train.lr:.0e}".replace("e-0", "e-"), "adapters" if model else "all weights")
    if "train.recompute" in keys:
        train += line("recompute", keys["train.recompute"], "makes activations again instead of keeping them")
    step = f"a step takes {recipe.sample.prompts} x {recipe.sample.group} completions"
    tokens = line("max_tokens", recipe.sample.max_tokens, "longer answers are cut")
    tokens += line("micro_batch", keys["sample.micro_batch"], f"chosen for {card}: `grpo check --gpu` has the sum")
    path = recipe.model.path
    for name, said in (
        ("model", f"model:\n  path: {path}\n{model}" if model else f"model: {path}\n"),
        ("prompts", line("prompts", recipe.sample.prompts, step)),
        ("max_tokens", tokens),
        ("lr", train),
    ):
        before, _, after = text.partition(PLACES[name].findall(text)[0])
        text = before + said + after
    return text
