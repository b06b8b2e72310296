"""Model FLOP utilisation against sums by hand."""

from __future__ import annotations

import pytest

from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.train.clock import Utilisation, arithmetic
from tests.builders.rollout_models import tiny


def test_weights_that_multiply_a_token_are_counted_once() -> None:
    # width 32, 4 heads of 8, 2 key heads, MLP of 48, 2 layers, 67 words
    layer = 32 * 32 * 2 + 2 * 32 * 16 + 3 * 32 * 48
    assert arithmetic(tiny("Llama")) == (2 * layer, 67 * 32, 4 * 2 * 32)
    assert arithmetic(tiny("Llama", tie_word_embeddings=False)) == (2 * layer, 67 * 32, 4 * 2 * 32)


def test_of_four_experts_a_token_is_sent_to_two() -> None:
    body = arithmetic(tiny("GptOss"))[0]
    experts = sum(w.numel() for n, w in tiny("GptOss").named_parameters() if "experts" in n and w.dim() > 1)
    others = sum(
        w.numel()
        for n, w in tiny("GptOss").named_parameters()
        if w.dim() > 1 and "experts" not in n and "embed" not in n and "lm_head" not in n
    )
    assert body == others + experts // 2


def test_the_share_is_three_forward_passes_over_the_time() -> None:
    one = Utilisation(body=10, head=5, attention=4, peak=1000.0)
    # prompt 2, completion 1: 2*10*3 + 2*5*1 + 4*(3*4/2) = 94
    assert one.share([(2, 1)], 1, 1.0) == pytest.approx(3 * 94 / 1000)
    assert one.share([(2, 1), (2, 1)], 2, 0.5) == pytest.approx(8 * 3 * 94 / 1000)
    assert one.share([], 1, 1.0) == 0


def test_a_cpu_has_no_share() -> None:
    tokenizer = byte_tokenizer()
    assert Utilisation.of(Policy.of(tiny_llama(tokenizer, 0), tokenizer)) is None
