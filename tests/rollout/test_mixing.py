"""Mixed inputs (N-GRPO): worked numbers, what is left out, and that sampling and scoring see the same inputs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_cli.errors import SetupError
from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.rollout.engine import Completion, Mix, Request, SamplingSettings
from grpo_cli.rollout.graph.engine import make_graph_engine
from grpo_cli.rollout.mixing import Mixer, batch_mixtures, mix_metrics, mixed_as_sampled, nearest, replaced
from grpo_cli.rollout.transformers_engine import TransformersEngine

E = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
Z = torch.tensor([2.0, 1.0, 0.5, -1.0], dtype=torch.float64)
W = torch.tensor([[1.0, 0.3], [-0.5, 0.8], [0.2, -1.0], [0.0, 0.4]], dtype=torch.float64)
R = torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.float64)


class Toy(nn.Module):
    """Four tokens of two numbers each, as a model has its embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(E.clone(), freeze=False)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def get_output_embeddings(self) -> None:
        return None


def mixer(k: int, temperature: float = 1.0, never: tuple[int, ...] = (), samples: int = 1, **mix: Any) -> Mixer:
    settings = SamplingSettings(4, temperature, seed=0, mix=Mix(mix.pop("rate", 1.0), k, **mix))
    return Mixer(Toy(), settings, [Request([0], samples)], samples, None, never)


def noted(made: Mixer, logits: Tensor = Z, token: int = 2) -> tuple[list[int], Tensor]:
    """The members and weights of a first step with these logits."""
    first, zero = torch.tensor([token]), torch.tensor([0])
    made.step(logits[None], first, torch.zeros(1), zero, zero, torch.zeros(2, 4, dtype=torch.long))
    return made.members[0, 0].tolist(), made.weights[0, 0]


@pytest.mark.parametrize(
    ("k", "temperature", "members", "weights"),
    [
        (2, 1.0, [0, 1], [0.731059, 0.268941]),
        (3, 1.0, [0, 1, 2], [0.628532, 0.231224, 0.140244]),
        (2, 0.5, [0, 1], [0.880797, 0.119203]),
    ],
)
def test_the_anchor_is_mixed_with_its_nearest(
    k: int, temperature: float, members: list[int], weights: list[float]
) -> None:
    found, share = noted(mixer(k, temperature))
    assert found == members and share.tolist() == pytest.approx(weights, abs=1e-6)


def test_what_goes_in_is_the_mean_and_the_module_s_own_output_elsewhere() -> None:
    made = mixer(2)
    noted(made)
    at = torch.tensor([0])
    with made.feeding(at, torch.tensor([1])):
        assert made.embed(torch.tensor([[2]]))[0, 0].tolist() == pytest.approx([0.973106, 0.026894], abs=1e-6)
        assert torch.equal(made.embed(torch.tensor([[3]])), E[3][None, None])  # behind the rows that were announced
    with made.feeding(at, torch.tensor([0])):  # nothing was written yet
        assert torch.equal(made.embed(torch.tensor([[2]])), E[2][None, None])


def test_special_tokens_are_in_no_mixture_and_anchor_none() -> None:
    members, weights = noted(mixer(2, never=(1,)))
    assert members == [0, 2] and weights.tolist() == pytest.approx([0.817574, 0.182426], abs=1e-6)
    assert not noted(mixer(2, never=(0,)))[1].any()
    zero = mixer(2)
    zero.allowed &= torch.tensor([True, False, True, True])
    assert noted(zero)[0] == [0, 2]


def test_of_equally_near_rows_the_first_is_taken() -> None:
    same = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    found = nearest(same, same.norm(dim=1), torch.tensor([1]), torch.ones(4, dtype=torch.bool), 3)
    assert found.tolist() == [[1, 0, 2]]


def test_a_sampled_token_has_the_gradient_of_the_expected_reward_but_for_the_path_through_the_weights() -> None:
    """Two steps, of which the second's input is mixed: the loss over all pairs of tokens beside differences of the expected reward."""
    members, share = noted(mixer(2))
    members_11k, weights_11k = torch.tensor([[members]]), share.double()[None, None]

    def second(z: Tensor, w: Tensor, toy: Toy) -> Tensor:
        with replaced(toy.embed, members_11k, weights_11k):
            return (w @ toy.embed(torch.tensor([[0]]))[0, 0]).log_softmax(-1)

    z, w, toy = Z.clone().requires_grad_(), W.clone().requires_grad_(), Toy()
    first, then = z.log_softmax(-1), second(z, w, toy)
    both = first.exp()[:, None] * then.exp()
    baseline = float((both.detach() * R).sum())
    assert baseline == pytest.approx(0.481587, abs=1e-6)
    drawn = [both[i, j].detach() * (R[i, j] - baseline) * (first[i] + then[j]) for i, j in product(range(4), range(4))]
    torch.stack(drawn).sum().backward()
    assert z.grad is not None and w.grad is not None and toy.embed.weight.grad is not None
    assert z.grad.tolist() == pytest.approx([0.114907, -0.08232, -0.036192, 0.003605], abs=2e-6)

    def expected(z: Tensor, w: Tensor, rows: Tensor) -> float:
        """Written down apart: the mixture at the logits `z`, unless that changes the weights."""
        share_of = (Z[members]).softmax(-1)
        into = share_of[0] * rows[members[0]] + share_of[1] * rows[members[1]]
        return float((z.softmax(-1)[:, None] * (w @ into).softmax(-1)[None] * R).sum())

    for got, at, vary in ((z.grad, Z, 0), (w.grad, W, 1), (toy.embed.weight.grad, E, 2)):
        for place in product(*map(range, at.shape)):
            step = torch.zeros_like(at)
            step[place] = 1e-6
            up, down = ([Z, W, E] for _ in range(2))
            up, down = list(up), list(down)
            up[vary], down[vary] = at + step, at - step
            assert float(got[place]) == pytest.approx((expected(*up) - expected(*down)) / 2e-6, abs=2e-6)


def test_a_written_anchor_pulls_towards_itself_which_is_why_it_is_left_out_of_the_loss() -> None:
    p, rho = Z.softmax(-1), 0.5
    mixed = (W @ (torch.tensor([0.731059, 0.268941], dtype=torch.float64) @ E[:2])).softmax(-1)
    plain = (W @ E.t()).softmax(0)  # of the second step, a column a first token
    drawn = sum(p[i] * plain[j, i] * R[i, j] for i, j in product(range(4), range(4)))
    mean = rho * (mixed * R[0]).sum() + (1 - rho) * drawn
    forced = rho * (mixed * (R[0] - mean)).sum() * (torch.eye(4, dtype=torch.float64)[0] - p)
    assert forced.tolist() == pytest.approx([0.020252, -0.011626, -0.007052, -0.001573], abs=2e-6)
    worth = torch.stack([(plain[:, i] * R[i]).sum() for i in range(4)])
    true = (1 - rho) * p * (worth - (p * worth).sum())
    assert true.tolist() == pytest.approx([0.063297, -0.037395, -0.026859, 0.000957], abs=2e-6)
    made = mixer(2, written="anchor")
    token, logp = made.step(
        Z[None],
        torch.tensor([2]),
        torch.zeros(1),
        torch.tensor([0]),
        torch.tensor([0]),
        torch.zeros(2, 4, dtype=torch.long),
    )
    assert token.tolist() == [0] and float(logp) == pytest.approx(float(Z.log_softmax(-1)[0]))
    assert made.mixtures(0, 0, 1)[0].is_forced and not mixer(2).mixtures(0, 0, 1)


def model(tied: bool = True) -> LlamaForCausalLM:
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=tied, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def drawn(of: LlamaForCausalLM, requests: list[Request], mix: Mix | None, rows: int = 256) -> list[list[Completion]]:
    tokenizer = byte_tokenizer()
    engine = make_graph_engine(
        of, {tokenizer.eos_token_id}, tokenizer=tokenizer, max_rows=rows, autocast=None, note=print
    )
    return engine.generate(requests, SamplingSettings(12, seed=3, mix=mix))


ASKED = [Request(byte_tokenizer().encode(text), 4) for text in ("ab", "cdefg")]


@pytest.mark.parametrize("written", ["sampled", "anchor"])
@pytest.mark.parametrize("tied", [True, False])
def test_training_scores_what_was_sampled_with_the_inputs_it_was_sampled_with(tied: bool, written: Any) -> None:
    policy = model(tied)
    for request, group in zip(ASKED, drawn(policy, ASKED, Mix(0.5, 3, "", written)), strict=True):
        assert 0.3 < mix_metrics(group)["mix/share"] < 0.7
        width = max(len(c.token_ids) for c in group)
        ids = torch.tensor([[*request.prompt_ids, *c.token_ids, *[0] * (width - len(c.token_ids))] for c in group])
        batch = batch_mixtures(group, width, 3, ids.device)
        with torch.no_grad(), mixed_as_sampled(policy, batch):
            logits = policy(input_ids=ids).logits[:, len(request.prompt_ids) - 1 : -1]
        with torch.no_grad():
            plain = policy(input_ids=ids).logits[:, len(request.prompt_ids) - 1 : -1]
        logps, other = (x.log_softmax(-1).gather(-1, ids[:, -width:, None])[..., 0] for x in (logits, plain))
        for row, c in enumerate(group):
            assert logps[row, : len(c.logps)].tolist() == pytest.approx(c.logps, abs=1e-4)
            forced = [one.at for one in c.mixtures if one.is_forced]
            assert [i for i, own in enumerate(c.mask) if not own] == forced
            assert bool(forced) == (written == "anchor")
        assert not torch.allclose(logps, other, atol=1e-3)


def test_rate_0_is_plain_sampling_and_the_numbers_that_pick_tokens_are_the_same_until_an_input_is_mixed() -> None:
    policy = model()
    plain, mixed = drawn(policy, ASKED, None), drawn(policy, ASKED, Mix(0.3))
    assert SamplingSettings.of(sample(rate=0.0)).mix is None
    for before, after in zip([c for g in plain for c in g], [c for g in mixed for c in g], strict=True):
        first = min((one.at for one in after.mixtures), default=len(after.token_ids) - 1)
        assert before.token_ids[: first + 1] == after.token_ids[: first + 1]
        assert before.logps[: first + 1] == pytest.approx(after.logps[: first + 1], abs=1e-5)


def sample(**mix: Any) -> Any:
    from grpo_cli.recipe.sections.method import Sample

    return Sample(mix=mix)


def test_a_sample_is_the_same_in_any_company() -> None:
    policy = model()
    whole = drawn(policy, ASKED, Mix(0.4, 3))
    few = drawn(policy, ASKED, Mix(0.4, 3), rows=3)
    alone = drawn(policy, ASKED[1:], Mix(0.4, 3))
    for a, b in [*zip(whole[0] + whole[1], few[0] + few[1], strict=True), *zip(whole[1], alone[0], strict=True)]:
        assert a.token_ids == b.token_ids
        assert [(m.at, m.members) for m in a.mixtures] == [(m.at, m.members) for m in b.mixtures]


def test_nothing_is_mixed_behind_the_text_that_ends_it() -> None:
    made = Mixer(model(), SamplingSettings(8, seed=0, mix=Mix(1.0, 2, "ab")), [Request([1])], 1, byte_tokenizer(), ())
    tokens, zero = torch.zeros(2, 8, dtype=torch.long), torch.tensor([0])
    likely = torch.zeros(1, len(byte_tokenizer()))
    likely[0, 70] = 9.0
    for step, token in enumerate(byte_tokenizer().encode("xabyz")):
        tokens[0, step] = token
        made.step(likely, torch.tensor([token]), torch.zeros(1), zero, torch.tensor([step]), tokens)
    assert [one.at for one in made.mixtures(0, 0, 5)] == [0, 1, 2]


def test_evaluation_is_plain_and_an_engine_without_a_place_for_it_refuses() -> None:
    assert SamplingSettings.of(sample(rate=0.1)).mix == Mix(0.1, 2, "</think>")
    assert SamplingSettings.measuring(sample(rate=0.1), 1).mix is None
    with pytest.raises(SetupError, match="needs the engine `graph`"):
        TransformersEngine(model(), {1}).generate(ASKED, SamplingSettings(4, seed=1, mix=Mix(0.1)))
