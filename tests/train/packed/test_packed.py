"""Packed rows against each row alone, on a CPU: layout, log-probs, gradients, and how a batch is dealt."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.train.log_probs import LogProbRequest, TrlLogProbs
from grpo_cli.train.packed.graphs import NotCaptured, renew_nodes
from grpo_cli.train.packed.layout import PackedShape, plan, rounded, shape_for
from grpo_cli.train.packed.score import ScoreNumerics, score, selected_logps
from grpo_cli.train.packed.self_check import alone, difference, rows, unfit
from grpo_cli.train.packed.source import PackedSource
from tests.builders.rollout_models import tiny

CPU = torch.device("cpu")


def batch(seed: int, groups: int = 3, size: int = 4, vocabulary: int = 67) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Random prompts of differing length, left-padded, and completions from one token to all columns."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    lead, keep = 6, 9
    ids, mask = [], []
    for _ in range(groups):
        prompt, said = draw(1, lead), torch.randint(vocabulary, (lead,), generator=generator)
        for place in range(size):
            length = 1 if place == 1 else draw(1, keep)
            rest = torch.randint(vocabulary, (keep,), generator=generator)
            ids.append(torch.cat([said, rest]))
            mask.append([0] * (lead - prompt) + [1] * (prompt + length) + [0] * (keep - length))
    return torch.stack(ids), torch.tensor(mask), keep


def packed(model, ids, mask, keep, numbers, shape=None):
    laid = plan(ids, mask, keep)
    shape = shape or shape_for(laid.need)
    return [laid.places(shape.targets, CPU).put(x) for x in score(model, laid.fill(shape, CPU), numbers)]


@pytest.mark.parametrize("family", ["Llama", "Llama-untied-mha", "Qwen2", "Qwen3", "Gemma", "Mistral"])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_packed_rows_score_as_each_row_alone(family, kind):
    model = tiny(family).to(kind).train()
    numbers = ScoreNumerics(temperature=0.8)
    close = 1e-5 if kind == torch.float64 else 1e-4  # the norms of these models compute in float32
    for seed in range(4):
        ids, mask, keep = batch(seed)
        if seed == 3:  # a row alone is one sequence
            ids, mask = ids[2:3], mask[2:3]
        pull = torch.randn(len(ids), keep, dtype=kind, generator=torch.Generator().manual_seed(seed))
        found = []
        for form in (alone, packed):
            model.zero_grad()
            found_by = form(model, ids, mask, keep, numbers)
            logps = found_by if torch.is_tensor(found_by) else found_by[0]
            (logps * pull).sum().backward()
            found.append([logps.detach(), *(p.grad.clone() for p in model.parameters())])
        for theirs, ours in zip(*found, strict=True):
            assert (ours - theirs).norm() <= close * theirs.norm().clamp(min=1e-3)
    assert model.config._attn_implementation != "grpo_packed"


def test_a_larger_shape_changes_no_number():
    model, (ids, mask, keep) = tiny().double(), batch(0)
    need = plan(ids, mask, keep).need
    small, large = shape_for(need), shape_for(PackedShape(*(3 * n for n in _sizes(need))))
    assert large.tokens > small.tokens and large.holds(need) and not small.holds(large)
    first, second = (packed(model, ids, mask, keep, ScoreNumerics(), shape)[0] for shape in (small, large))
    assert torch.allclose(first, second, atol=1e-12)


def test_a_row_alone_is_one_sequence_without_copies():
    model, (ids, mask, keep) = tiny().double(), batch(0)
    ids, mask = ids[:1], mask[:1]
    laid, apart = plan(ids, mask, keep), plan(ids, mask, keep, joins=False)
    assert laid.need.is_one and not apart.need.is_one and laid.need.tokens == apart.need.tokens
    assert laid.need.keys == laid.need.tokens < apart.need.keys
    one, two = shape_for(laid.need), shape_for(apart.need)
    assert one.is_one and one.holds(laid.need) and two.holds(laid.need) and not one.holds(apart.need)
    large = shape_for(PackedShape(*(3 * n for n in _sizes(laid.need)[:3]), 1, one.longest))
    first, *others = (
        found.places(shape.targets, CPU).put(score(model, found.fill(shape, CPU), ScoreNumerics())[0])
        for found, shape in ((apart, two), (laid, one), (laid, large), (laid, two))
    )
    assert all(torch.allclose(first, other, atol=1e-12) for other in others)
    assert difference(model.train(), ScoreNumerics(), [], joined=True) is None


def _sizes(shape):
    return shape.tokens, shape.keys, shape.targets, shape.sequences, shape.longest


def test_each_prompt_goes_through_once():
    ids, mask, keep = batch(1, groups=2, size=5)
    laid = plan(ids, mask, keep)
    prompts = mask[::5, :-keep].sum()
    assert laid.need.tokens == prompts + (mask[:, -keep:].sum(1) - 1).sum()
    assert laid.need.targets == mask[:, -keep:].sum()


def test_rows_without_a_token_and_masks_with_holes():
    model, (ids, mask, keep) = tiny().double(), batch(2)
    mask[3, -keep:] = 0
    logps = packed(model, ids, mask, keep, ScoreNumerics())[0]
    assert not logps[3].any() and logps[2].any()
    mask[4, -keep + 1 :] = torch.tensor([0, 1, *[0] * (keep - 3)])
    assert plan(ids, mask, keep) is None


def test_rounded_sizes_hold_and_waste_little():
    for size in range(1, 60_000, 37):
        assert size <= rounded(size) < size * (1 + 1 / 32) + 256


@pytest.mark.parametrize("width", [None, 7, 64])
def test_entropies_and_log_probs_have_exact_gradients(width):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 16, generator=generator, dtype=torch.float64, requires_grad=True) for n in (9, 67))
    bias = torch.randn(67, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(67, (9,), generator=generator)
    counts = torch.arange(9) % 4 != 2
    pulls = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    logits = (hidden @ weight.T + bias) / 0.7
    expected = logits.log_softmax(-1)
    wanted = (
        torch.where(counts, expected.gather(1, labels[:, None])[:, 0], 0.0),
        torch.where(counts, -(expected.exp() * expected).sum(-1), 0.0),
    )
    found = selected_logps(hidden, weight, labels, counts, bias_V=bias, temperature=0.7, width=width)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    grads = [
        torch.autograd.grad((a * pulls[0] + b * pulls[1]).sum(), (hidden, weight, bias)) for a, b in (found, wanted)
    ]
    for ours, theirs in zip(*grads, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_a_model_proves_itself_and_a_wrong_one_does_not():
    model = tiny().train()
    assert unfit(model, ScoreNumerics()) is None and difference(model, ScoreNumerics(), []) is None
    assert all(p.grad is None for p in model.parameters())
    scores = "log-probs are off"
    model.model.forward = _shifted(model.model.forward)
    assert scores in difference(model, ScoreNumerics(), [])
    assert "scales its logits" in unfit(tiny("Granite"), ScoreNumerics())


def _shifted(own):
    def forward(*args, position_ids=None, **named):
        return own(*args, position_ids=None if position_ids is None else position_ids * 2, **named)

    return forward


def test_trl_gets_the_same_answer_whether_rows_were_laid_out_before_or_not():
    model = tiny().train()
    source = PackedSource(model, ScoreNumerics(), lambda _: None, TrlLogProbs(False), captures=False)
    ids, mask, keep = batch(0)
    request = LogProbRequest(
        model, ids, mask, keep, 5, {"compute_entropy": True}, lambda: pytest.fail("TRL's own pass")
    )
    inputs = {
        "prompt_ids": ids[:, :-keep], "prompt_mask": mask[:, :-keep],
        "completion_ids": ids[:, -keep:], "completion_mask": mask[:, -keep:],
    }  # fmt: skip
    (found, share), ahead = source.ahead(lambda: (inputs, 0.5))
    assert share == 0.5 and found is inputs
    once, split = ahead(request), source(request)
    for a, b in zip(once[:2], split[:2], strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert once[0].requires_grad and not once[1].requires_grad
    plain = LogProbRequest(model, ids, mask, keep, None, {"pixel_values": ids}, lambda: ("plain", None, None))
    assert source(plain)[0] == "plain"


def test_micro_batches_keep_groups_together_and_even():
    from grpo_cli.train.updates import by_group

    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(32, generator=generator)
    lengths = torch.randint(1, 40, (32,), generator=generator)
    batches = [
        {
            "sample": part,
            "completion_mask": (torch.arange(40) < lengths[part][:, None]).long(),
            "advantages": torch.where(part < 4, 0.0, 1.0),
            "name": [f"row {i}" for i in part.tolist()],
            "num_items_in_batch": 7,
        }
        for part in order.split(8)
    ]
    dealt = by_group(batches, 2, 4, drops_dead=True)
    assert [len(b["sample"]) for b in dealt] == [8] * 4 and dealt[0]["num_items_in_batch"] == 7
    for window in (slice(0, 2), slice(2, 4)):
        before, after = (sorted(torch.cat([b["sample"] for b in x[window]]).tolist()) for x in (batches, dealt))
        assert before == after
    for b in dealt:
        assert b["name"] == [f"row {i}" for i in b["sample"].tolist()]
        assert torch.equal(b["completion_mask"].sum(1), lengths[b["sample"]])
    whole = [{k: torch.cat([b[k] for b in batches]) for k in ("sample", "completion_mask", "advantages")}]
    four = [
        dict(zip(whole[0], part, strict=True)) for part in zip(*(v.split(8) for v in whole[0].values()), strict=True)
    ]
    dealt = by_group(four, 4, 4, drops_dead=True)
    for b in dealt:
        assert len({s // 4 for s in b["sample"].tolist()}) == 2
    tokens = [int(b["completion_mask"].sum(1)[b["advantages"] != 0].sum()) for b in dealt]
    assert max(tokens) - min(tokens) < 80


def test_the_rows_of_the_proof_share_prompts():
    ids, mask, keep = rows(67, CPU)
    assert plan(ids, mask, keep).need.tokens < mask.sum()


def test_a_pass_that_is_held_keeps_no_node_of_the_next_one():
    weight = torch.nn.Parameter(torch.randn(4, 3))
    weight.grad = torch.ones_like(weight)
    held, version = (weight * 2).sum(), weight._version

    def node():
        return weight.view_as(weight).grad_fn.next_functions[0][0]

    first = node()
    assert node() is first
    before = weight.detach().clone()
    renew_nodes([weight])
    assert node() is not first
    assert torch.equal(weight, before) and weight.dtype == torch.float32 and weight._version >= version
    held.backward()  # as it would have done
    assert torch.equal(weight.grad, torch.full_like(weight, 3.0))
    (weight * 5).sum().backward()
    assert torch.equal(weight.grad, torch.full_like(weight, 8.0))


def test_a_pass_that_cannot_be_captured_runs_without_graphs_and_says_why():
    model, said = tiny().double(), []

    class Refusing:
        def score(self, plan):
            raise NotCaptured("operation not permitted when stream is capturing")

    ids, mask, keep = batch(1)
    source = PackedSource(model, ScoreNumerics(), said.append, TrlLogProbs(False), captures=False)
    expected = source(LogProbRequest(model, ids, mask, keep, None, {}, lambda: None))[0]
    source.graphs = Refusing()
    found = source(LogProbRequest(model, ids, mask, keep, None, {}, lambda: None))[0]
    assert torch.equal(found, expected) and found.requires_grad and source.graphs is None
    assert said == ["the update runs without CUDA graphs: operation not permitted when stream is capturing"]
