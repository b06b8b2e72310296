"""Embeddings against forward passes row by row, and the clusters that come of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError, SetupError
from grpo_cli.measure.clustering import PARTS, Embeddings, clusters_of_run, embed, k_means, make_clusters, principal
from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import Recipe
from tests.builders.rollout_models import tiny
from tests.builders.workplaces import tiny_recipe


def policy(family: str = "Llama") -> Policy:
    model = tiny(family, vocab_size=len(byte_tokenizer()))
    return Policy(model, byte_tokenizer(), torch.device("cpu"), None, frozenset({1}))


def row(number: int, prompt: str, gold: object = None) -> Row:
    return Row(f"id-{number}", prompt, None, {} if gold is None else {"answer": gold})


def recipe(folder: Path, **ads: int) -> Recipe:
    return tiny_recipe(
        folder,
        [{"question": f"say {i}"} for i in range(8)],
        verify={"regex": {"pattern": "[a-m]"}},
        sample={"prompts": 4, "group": 4, "max_tokens": 4},
        train={"steps": 2, "lr": 1e-3, "select": "ads", "ads_ok": True, "ads": ads},
    )


ROWS = [row(0, "2+2=", 4), row(1, "a much longer question?", "yes, it is"), row(2, "no gold"), row(3, "l?", [1])]


def test_an_embedding_is_the_mean_state_and_the_likelihood_of_the_gold() -> None:
    made = policy()
    found = embed(made, ROWS)
    for i, (one, gold) in enumerate(zip(ROWS, ["4", "yes, it is", "", ""], strict=True)):
        prompt = list(made.tokenizer(one.prompt, add_special_tokens=False).input_ids)
        said = list(made.tokenizer(gold, add_special_tokens=False).input_ids)
        with torch.no_grad():
            out = made.model(input_ids=torch.tensor([prompt + said]), output_hidden_states=True)
        assert torch.allclose(found.vectors_NH[i], out.hidden_states[-1][0].mean(dim=0), atol=1e-5)
        if not said:
            assert found.nlls[i] is None
            continue
        logps = out.logits[0].log_softmax(dim=-1)
        exact = -sum(float(logps[len(prompt) + t - 1, token]) for t, token in enumerate(said)) / len(said)
        assert found.nlls[i] == pytest.approx(exact, abs=1e-5)


def test_rows_do_not_depend_on_what_else_is_embedded() -> None:
    made = policy()
    whole = embed(made, ROWS)
    for i, one in enumerate(ROWS):
        alone = embed(made, [one])
        assert torch.allclose(whole.vectors_NH[i], alone.vectors_NH[0], atol=1e-5)


def heaps(k: int, each: int, width: int = 6) -> torch.Tensor:
    chance = torch.Generator().manual_seed(3)
    centres = torch.eye(width)[:k] * 4
    return torch.cat([c + 0.1 * torch.randn(each, width, generator=chance) for c in centres])


def test_k_means_finds_heaps_apart_and_is_the_same_for_a_seed() -> None:
    points = heaps(4, 25).double()
    labels = k_means(points, 4, seed=1)
    assert torch.equal(labels, k_means(points, 4, seed=1))
    assert [len(set(labels[i * 25 : (i + 1) * 25].tolist())) for i in range(4)] == [1] * 4
    assert len(set(labels.tolist())) == 4


def test_k_means_leaves_no_cluster_empty_where_points_repeat() -> None:
    points = torch.tensor([[0.0], [0.0], [0.0], [1.0], [5.0]]).double()
    assert sorted(torch.bincount(k_means(points, 3, seed=0)).tolist()) == [1, 1, 3]


def test_principal_parts_keep_the_distances_that_there_are() -> None:
    chance = torch.Generator().manual_seed(0)
    wide = torch.randn(40, 300, generator=chance)  # 40 points span no more than 39 directions
    units = torch.nn.functional.normalize(wide.double(), dim=1)
    parts = principal(wide)
    assert parts.shape == (40, PARTS)
    assert torch.allclose(torch.cdist(parts, parts), torch.cdist(units, units), atol=1e-5)


def test_clusters_go_from_the_likeliest_gold_to_the_unlikeliest(tmp_path: Path) -> None:
    points = torch.nn.functional.normalize(heaps(2, 4), dim=1)
    made = make_clusters(
        Embeddings(points, [3.0, 1.0, 2.0, 0.5, None, 1.0, 2.0, 3.0]), recipe(tmp_path, clusters=2, active=2)
    )
    assert made.members == ((3, 1, 2, 0), (4, 5, 6, 7))
    assert made.ranked == (True, False)


def test_what_cannot_be_clustered_is_refused(tmp_path: Path) -> None:
    asked = recipe(tmp_path, clusters=4, active=2)
    with pytest.raises(DataError, match="1 different ones"):
        make_clusters(Embeddings(torch.ones(8, 4), [None] * 8), asked)
    with pytest.raises(DataError, match="not all finite"):
        make_clusters(Embeddings(torch.full((8, 4), float("nan")), [None] * 8), asked)


def test_clusters_of_a_run_are_made_once(tmp_path: Path) -> None:
    asked = recipe(tmp_path, clusters=2, active=2)
    rows = [row(i, "ab"[i % 2] * 5 + str(i), i) for i in range(8)]
    first = clusters_of_run(tmp_path, asked, policy(), rows, resumes=False)
    written = (tmp_path / "clusters.json").read_text()
    other = policy("Qwen3")  # by now the model is another
    assert clusters_of_run(tmp_path, asked, other, rows, resumes=True) == first
    assert (tmp_path / "clusters.json").read_text() == written
    assert sorted(i for one in json.loads(written)["clusters"] for i in one["rows"]) == [r.id for r in rows]
    with pytest.raises(DataError, match="not there when the run was begun"):
        clusters_of_run(tmp_path, asked, other, [*rows, row(9, "new")], resumes=True)
    (tmp_path / "clusters.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        clusters_of_run(tmp_path, asked, other, rows, resumes=True)
    (tmp_path / "clusters.json").unlink()
    with pytest.raises(SetupError, match="are gone"):
        clusters_of_run(tmp_path, asked, other, rows, resumes=True)
