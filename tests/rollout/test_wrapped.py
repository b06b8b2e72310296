"""accelerate puts an autocast with kept casts around a model it prepares; a captured graph must not see it."""

from types import MethodType

import torch

from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine


def test_the_wrapper_of_accelerate_is_out_of_the_way_while_generating_and_back_afterwards() -> None:
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, 0)
    engine = make_engine("graph", model, tokenizer)
    settings, requests = SamplingSettings(max_tokens=4, temperature=0.0), [Request([1, 2, 3], 2)]
    alone = engine.generate(requests, settings)
    model._original_forward = model.forward  # as `Accelerator.prepare_model` does it
    wrapped = torch.autocast("cpu", torch.bfloat16)(model.forward.__func__)
    model.forward = MethodType(wrapped, model)
    wrapper, seen = model.forward, list[bool]()
    model.model.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    model(input_ids=torch.tensor([[1, 2]]))
    assert seen == [True]
    assert engine.generate(requests, settings) == alone
    assert len(seen) > 1
    assert not any(seen[1:])
    assert model.forward == wrapper
