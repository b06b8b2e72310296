"""The recipe's `warmup:` section: rows become demonstrations, phases run in order, the result is cached by content.

How this works: `warm_up` gets a recipe, a policy and the training rows. Each phase takes its own rows, or the training
rows; its template or an environment makes a demonstration of each row. A hash of the model, the demonstrations, the
phases' settings and the seed names a folder of the cache. If that folder has weights they are loaded; otherwise
`supervise` trains the phases one after the other and the weights are stored. The policy is changed in place; a
`ColdStart` describes what was done.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from grpo_cli.data.audit import refuse_shown
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.data.template import parse
from grpo_cli.policy.ban import lifted
from grpo_cli.policy.loading.failures import numbers_only
from grpo_cli.policy.muon import orthogonal_dtype
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tiny import TINY_VISION
from grpo_cli.policy.warmup import Phase, WarmupText, content_key, supervise
from grpo_cli.recipe.sections.recipe import Recipe, WarmupPhase
from grpo_cli.run.cache import cache_root

if TYPE_CHECKING:
    from torch import nn

PlayRows = Callable[[Sequence[Row], int], list[WarmupText]]
"""Demonstrations that an environment plays for these rows, with this seed."""

WEIGHTS = "weights.pt"


@dataclass(frozen=True)
class ColdStart:
    """What the warm-up did: steps, seconds, demonstrations seen, and whether it came from the cache."""

    steps: int
    seconds: float
    demonstrations: int
    from_cache: bool
    texts: int
    """Different demonstrations."""
    entropy: float
    """Mean over the imitated tokens of the last batch, in nats, before the last step."""

    def text(self) -> str:
        """One line for the display."""
        how = "from the cache" if self.from_cache else f"in {self.seconds:.1f}s"
        shown = f"{self.texts:,} different ones, {self.demonstrations / max(self.texts, 1):.1f} times each"
        return f"warm-up: {self.steps} supervised steps on {self.demonstrations:,} demonstrations ({shown}), {how}"

    def metrics(self) -> dict[str, float]:
        """`warmup/texts`, `warmup/repeats` (draws over texts) and `warmup/entropy`."""
        repeats = self.demonstrations / max(self.texts, 1)
        return {"warmup/texts": self.texts, "warmup/repeats": repeats, "warmup/entropy": self.entropy}


def warm_up(
    recipe: Recipe,
    policy: Policy,
    rows: Sequence[Row],
    base: Path | None,
    on_progress: Callable[[int, int], None],
    play: PlayRows | None = None,
    held_out: Sequence[Row] = (),
) -> ColdStart | None:
    """The recipe's warm-up on a policy, whose weights it changes; None where it has none. `play` makes the demonstrations of phases
    without a template of their own.

    Raises:
        RecipeError, DataError: as `cold_start` and `phase_rows`.
    """
    if not recipe.warmup:
        return None
    with lifted(policy.model):
        phases = phase_rows(recipe, "warmup", rows, base, held_out)
        device = policy.device.type
        # on a CPU the number of threads decides the order of a sum, and with it the last bits
        threads = torch.get_num_threads() if device == "cpu" else 0
        # our Muon gives other weights than torch's, which older versions stored under the same key
        kinds = {str(orthogonal_dtype(p)) for p in policy.model.parameters() if p.ndim == 2}
        muon = "/muon " + " ".join(sorted(kinds)) if any(phase.muon_lr for phase, _ in phases) else ""
        # the seed determines the built-in model; any other model is identified by its weights
        start = "" if recipe.model.path in ("builtin:tiny", TINY_VISION) else f"/{weights_digest(policy.model)}"
        return cold_start(
            policy,
            phases,
            # a longer context changes no weight
            model_key=f"{recipe.model.model_dump_json(exclude={'context'})}/{device}/{threads}{muon}{start}",
            seed=recipe.train.seed,
            on_progress=on_progress,
            play=play,
        )


def phase_rows(
    recipe: Recipe, section: Literal["warmup", "sft"], rows: Sequence[Row], base: Path | None, held_out: Sequence[Row]
) -> list[tuple[WarmupPhase, Sequence[Row]]]:
    """Each phase of a section with its rows: its own, or the training rows where it names none.

    Raises:
        RecipeError, DataError: as `load_rows` and `refuse_shown`.
    """
    found: list[tuple[WarmupPhase, Sequence[Row]]] = []
    for at, phase in enumerate((recipe.warmup if section == "warmup" else recipe.sft) or ()):
        own = rows
        if phase.data is not None:
            own = load_rows(recipe.data.model_copy(update={"train": [phase.data]}), "train", base)
        templates = [one.template for one in phase.demonstration]
        refuse_shown(f"{section}[{at}]", phase.data, templates, own[: phase.limit], held_out)
        found.append((phase, own))
    return found


def cold_start(
    policy: Policy,
    phases: Sequence[tuple[WarmupPhase, Sequence[Row]]],
    *,
    model_key: str,
    seed: int,
    on_progress: Callable[[int, int], None],
    play: PlayRows | None = None,
) -> ColdStart:
    """Train the policy in place on demonstrations, or load the same result from the cache.

    Raises:
        RecipeError, DataError: as `play`.
    """
    began = time.perf_counter()
    total = sum(phase.steps for phase, _ in phases)
    model = policy.model
    encoded: dict[int, list[int]] = {}
    made = [
        demonstrations(policy, phase, rows, seed + i, encoded)
        if phase.demonstration or play is None
        else played(play, rows[: phase.limit], phase, seed + i)
        for i, (phase, rows) in enumerate(phases)
    ]
    plans = [plan_of(phase) for phase, _ in phases]
    folder = cache_root() / "warmup" / content_key(model_key, made, plans, seed)
    count = sum(plan.steps * plan.batch for plan in plans)
    texts = len({content_key("", [[one]], [], 0) for part in made for one in part})
    if (folder / WEIGHTS).is_file():
        try:
            with numbers_only(folder / WEIGHTS):
                saved = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)
            # not strict: buffers that are not saved, such as a ban, have no entry
            model.load_state_dict(saved, strict=False)
        except (EOFError, OSError, RuntimeError, TypeError):
            # the file is cut off or belongs to another model: train again
            shutil.rmtree(folder, ignore_errors=True)
        else:
            about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
            on_progress(total, total)
            return ColdStart(
                total, time.perf_counter() - began, count, True, texts, float(about.get("entropy", math.nan))
            )
    done, entropy, pad_id = 0, math.nan, policy.tokenizer.pad_token_id
    assert pad_id is not None  # `load_model` gave it one
    for i, plan in enumerate(plans):
        base = done
        _, entropy = supervise(
            model,
            made[i],
            plan,
            seed=seed + i,
            pad_id=pad_id,
            on_step=lambda step, loss, base=base: on_progress(base + step, total),  # type: ignore[misc]
            vision=policy.vision,
        )
        done += plan.steps
    # write under another name, then rename: the folder is complete or absent
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        fresh.mkdir(parents=True)
        torch.save({name: p.detach().cpu() for name, p in model.state_dict().items()}, fresh / WEIGHTS)
        about = {"steps": total, "demonstrations": count, "entropy": entropy}
        (fresh / "about.json").write_text(json.dumps(about), encoding="utf-8")
        # another run may have stored the same weights meanwhile: the rename then fails, and that copy is used
        os.rename(fresh, folder)
    except (OSError, RuntimeError):  # torch reports a full disk as an error of its own; a cache is no reason to stop
        shutil.rmtree(fresh, ignore_errors=True)
    return ColdStart(total, time.perf_counter() - began, count, False, texts, entropy)


MOST_TEXTS = 2_000
FEW_NEW = 0.05


def played(play: PlayRows, rows: Sequence[Row], phase: WarmupPhase, seed: int) -> list[WarmupText]:
    """Demonstrations of an environment. Each row is played once, then again with other seeds, until there are as many
    different demonstrations as the phase shows (`limit`, at most 2,000) or a round adds few new ones. An environment
    whose row determines everything adds none."""
    found = play(rows, seed)
    wanted = phase.limit or min(phase.steps * phase.batch, MOST_TEXTS)
    seen = {(*one.prompt_ids, -1, *one.completion_ids) for one in found}
    again = 0
    while rows and len(seen) < wanted:
        again += 1
        before = len(seen)
        for one in play(rows, seed + 1_000_003 * again):
            key = (*one.prompt_ids, -1, *one.completion_ids)
            if key not in seen and len(seen) < wanted:
                seen.add(key)
                found.append(one)
        if len(seen) - before < FEW_NEW * len(rows):
            break
    return found


def weights_digest(model: nn.Module) -> str:
    """A hash of the current weights. The name is not enough: a folder may hold another model than last time.

    Of a fresh adapter only the matrices that are 0 enter the hash. The others are random and have no effect yet.
    """
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        if "lora_A" not in name:
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def plan_of(phase: WarmupPhase) -> Phase:
    """The numbers of a phase."""
    return Phase(phase.steps, phase.lr, phase.muon_lr, phase.batch, phase.lr_warmup_steps, phase.final_lr)


def demonstrations(
    policy: Policy, phase: WarmupPhase, rows: Sequence[Row], seed: int, encoded: dict[int, list[int]]
) -> list[WarmupText]:
    """One demonstration a row; where there are several templates each row draws one by weight.

    Args:
        rows: every row fills every template (`refuse_shown` has checked it).
        encoded: prompts that earlier phases have encoded, by `id(row)`; this phase adds its own.
    """
    templates = [parse(d.template) for d in phase.demonstration]
    weights = [d.weight for d in phase.demonstration]
    # a random stream apart from the one that draws batches: with the same one, template and row would be correlated
    draw, found = random.Random(seed + 5), []
    for row in rows[: phase.limit]:
        text = draw.choices(templates, weights)[0].fill(row.fields)
        if id(row) not in encoded:
            encoded[id(row)] = policy.encode(row)
        found.append(WarmupText(encoded[id(row)], policy.encode_answer(text), images=row.images))
    return found
