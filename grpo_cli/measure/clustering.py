"""Rows that lie together in the policy's space, from the likeliest gold to the unlikeliest; kept in the run folder.

How this works. `clusters_of_run` reads the file in the run's folder, or makes it as the run starts: `embed` runs the policy over each
row and keeps its hidden state and the likelihood of its gold, `k_means` groups the directions of these states, and inside a
cluster rows are ordered by the likelihood of their golds. N rows, H the width of the model, D principal directions,
K clusters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_cli.curriculum.ads import Clusters
from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import gold_of_row
from grpo_cli.errors import DataError, SetupError
from grpo_cli.policy.modes import causal_model, evaluating, numerics
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.checking.method import cluster_count
from grpo_cli.recipe.sections.recipe import AdsSpec, Recipe
from grpo_cli.rollout.graph.continuous_batch import chunk_by_tokens
from grpo_cli.run import lines
from grpo_cli.run.records import parse_line

FILE, SCHEMA = "clusters.json", 1
PARTS = 128
"""Principal components that are kept."""
ROUNDS = 100
"""Most rounds of K-means."""


def clusters_of_run(
    folder: Path,
    recipe: Recipe,
    policy: Policy,
    rows: Sequence[Row],
    *,
    resumes: bool,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Clusters:
    """The clusters in a run's folder; made by the policy as the run starts, and written there, where there are none yet.

    Raises:
        DataError: the rows are not those of the run, or they are all alike to the policy.
        SetupError: the run has steps behind it and the file is gone: by now the policy is another.
    """
    file, ids = folder / FILE, [row.id for row in rows]
    # the clusters hold the ids of rows, and also depend on model, warm-up, number and seed
    parts = [
        recipe.model.model_dump(mode="json"),
        [phase.model_dump(mode="json") for phase in recipe.warmup or ()],
        (recipe.train.ads or AdsSpec()).clusters,
        recipe.train.seed,
    ]
    made_of = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    if file.is_file():
        try:
            read = parse_line(file.read_bytes())
            # the run was begun with another model or seed: its clusters do not fit
            if read["of"] == made_of:
                return Clusters.from_json(read["clusters"], ids)
        except (ValueError, KeyError, TypeError) as err:
            raise DataError("the clusters of the run cannot be read", place=str(file)) from err
    if resumes:
        raise SetupError(
            "the clusters of the run are gone, and the model that they were made with has moved since",
            place=str(file),
            hint="start another run; `model: CHECKPOINT` lets it go on from the weights",
        )
    found = make_clusters(embed(policy, rows, on_progress), recipe)
    lines.replace(file, json.dumps({"schema": SCHEMA, "of": made_of, "clusters": found.as_json(ids)}) + "\n")
    return found


def make_clusters(found: Embeddings, recipe: Recipe) -> Clusters:
    """K-means over directions of the policy's states; inside a cluster by the likelihood of the golds.

    A cluster with a row without a gold is not ranked.

    Raises:
        DataError: states that are no numbers, or fewer different ones than clusters a step draws from.
    """
    spec = recipe.train.ads or AdsSpec()
    wanted = spec.clusters or cluster_count(len(found.nlls))
    # directions, because the length of a state shows how frequent its tokens are, not what they are about
    points_ND = principal(found.vectors_NH)
    if not bool(torch.isfinite(points_ND).all()):
        raise DataError("`select: ads` cannot cluster the rows: the model's states are not all finite numbers")
    different = len(torch.unique(points_ND.round(decimals=6), dim=0))
    if different < min(spec.active, wanted):
        raise DataError(
            f"`select: ads` cannot cluster the rows: to the model they are {different} different ones",
            hint="say `select: auto`, which goes by what became of each row",
        )
    labels = k_means(points_ND, min(wanted, different), recipe.train.seed).tolist()
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(labels):  # clusters in the order of their first rows
        groups.setdefault(label, []).append(row)
    members, ranked = [], []
    for group in groups.values():
        known = [(nll, row) for row in group if (nll := found.nlls[row]) is not None]
        ranked.append(len(known) == len(group))
        members.append(tuple(row for _, row in sorted(known)) if ranked[-1] else tuple(group))
    return Clusters(tuple(members), tuple(ranked))


def principal(vectors_NH: Tensor) -> Tensor:
    """(N, D) coordinates of the unit vectors along their first principal components, float64; D at most 128."""
    units = F.normalize(vectors_NH.double(), dim=1)
    centred: Tensor = units - units.mean(dim=0)
    if centred.shape[1] <= PARTS or not bool(torch.isfinite(centred).all()):
        return centred
    # of the H x H matrix: rows may be a hundred times as many as the model is wide
    _, axes = torch.linalg.eigh(centred.T @ centred)
    parts: Tensor = centred @ axes[:, -PARTS:]
    return parts


def k_means(points_ND: Tensor, k: int, seed: int) -> Tensor:
    """(N,) labels below `k`: Lloyd's rounds from k-means++ centres (Arthur and Vassilvitskii 2007), the same for a seed.

    A centre that loses all its points moves to the point that lies farthest from its own.
    """
    chance = torch.Generator().manual_seed(seed)
    first = int(torch.randint(len(points_ND), (1,), generator=chance))
    centres = points_ND[first][None]
    for _ in range(k - 1):
        away = _squared(points_ND, centres).amin(dim=1)
        weights = away if float(away.sum()) > 0 else torch.ones_like(away)
        nearest = int(torch.multinomial(weights, 1, generator=chance))
        centres = torch.cat([centres, points_ND[nearest][None]])
    labels = torch.full((len(points_ND),), -1)
    for _ in range(ROUNDS):
        far = _squared(points_ND, centres)
        new = far.argmin(dim=1)
        if torch.equal(new, labels):
            break
        labels = new
        sums = torch.zeros_like(centres).index_add_(0, labels, points_ND)
        counts = torch.bincount(labels, minlength=k)
        centres = sums / counts.clamp(min=1)[:, None].to(sums)
        # the point farthest from its centre
        lost = far.gather(1, labels[:, None]).squeeze(1).argsort(descending=True, stable=True).tolist()
        for empty in (counts == 0).nonzero().flatten().tolist():
            centres[empty] = points_ND[lost.pop(0)]
    return labels


def _squared(points_ND: Tensor, centres_KD: Tensor) -> Tensor:
    """(N, K) squared distances."""
    squares_N1, squares_K = points_ND.square().sum(1)[:, None], centres_KD.square().sum(1)
    # for equal points the difference of squares may be slightly below 0
    return torch.clamp(squares_N1 - 2 * points_ND @ centres_KD.T + squares_K, min=0)


# The policy's view of each row and its gold: their hidden state, and the likelihood of the gold to it.

TOKENS = 8192
"""Number of tokens, including padding, that go through the model at once."""


@dataclass(frozen=True)
class Embeddings:
    """(N, H) mean last hidden states, float32 on the CPU, and the mean negative log-likelihood a token of each gold (nats);
    None for a row without a gold that is one text or number."""

    vectors_NH: Tensor
    nlls: list[float | None]


def embed(
    policy: Policy, rows: Sequence[Row], on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Embeddings:
    """Each row's prompt, with the gold behind it as if the policy had written it; cut where its context ends.

    Likelihoods are at temperature 1. One forward pass of all tokens; rows of like length go together.
    """
    # ids of prompt and gold, and how many of them are the gold's
    texts = list[tuple[list[int], int]]()
    for row in rows:
        prompt, gold = policy.encode(row), gold_of_row(row.fields)
        ids = list(policy.tokenizer(gold, add_special_tokens=False).input_ids) if gold is not None else []
        # a gold that is cut still shows where the row lies
        ids = ids[: None if policy.context is None else max(0, policy.context - len(prompt))]
        texts.append((prompt + ids, len(ids)))
    # rows of like length together, and always in the same batches, so that the last bits are the same again
    batches = chunk_by_tokens([len(ids) for ids, _ in texts], TOKENS)
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    nlls: list[float | None] = [None] * len(rows)
    done = 0
    with evaluating(policy.model):
        for batch in batches:
            means, losses = _forward(policy, [texts[i] for i in batch])
            for i, mean, loss in zip(batch, means, losses, strict=True):
                vectors[i], nlls[i] = mean, loss
            done += len(batch)
            on_progress(done, len(rows))
    return Embeddings(torch.stack(vectors), nlls)


def _forward(policy: Policy, texts: Sequence[tuple[Sequence[int], int]]) -> tuple[Tensor, list[float | None]]:
    """(B, H) means over the tokens of each text, and the loss of its gold tokens."""
    width = max(len(ids) for ids, _ in texts)
    # padded on the right, which a causal model never looks at
    ids_BS = torch.zeros(len(texts), width, dtype=torch.long)
    mask_BS = torch.zeros(len(texts), width, dtype=torch.long)
    gold_BS = torch.zeros(len(texts), width, dtype=torch.bool)
    for i, (ids, n) in enumerate(texts):
        ids_BS[i, : len(ids)], mask_BS[i, : len(ids)] = torch.tensor(ids), 1
        gold_BS[i, len(ids) - n : len(ids)] = True
    ids_BS, mask_BS, gold_BS = (part.to(policy.device) for part in (ids_BS, mask_BS, gold_BS))
    before_BS = F.pad(gold_BS[:, 1:], (0, 1))  # the states that predict a gold token
    seen: list[Tensor] = []

    def keep(_: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.append(states[0])
        # one state at least: a head may not take none
        wanted = before_BS if bool(before_BS.any()) else before_BS.new_ones(before_BS.shape)
        return (states[0][wanted][None], *states[1:])

    head = causal_model(policy.model).get_output_embeddings()
    assert head is not None, "a causal language model has a head"
    handle = head.register_forward_pre_hook(keep)
    try:
        with numerics(policy.model, policy.autocast):
            said: Any = policy.model(input_ids=ids_BS, attention_mask=mask_BS, use_cache=False)
    finally:
        handle.remove()
    weight_BS1 = mask_BS[..., None].float()
    means_BH = (seen[0].float() * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1)
    counts = gold_BS.sum(dim=1).tolist()
    if not any(counts):
        return means_BH.cpu(), [None] * len(texts)
    # in the same order: `before_BS` is `gold_BS` moved by one, and both are read row by row
    losses = F.cross_entropy(said.logits[0].float(), ids_BS[gold_BS], reduction="none")
    parts = torch.split(losses.cpu(), counts)
    return means_BH.cpu(), [float(part.mean()) if len(part) else None for part in parts]
