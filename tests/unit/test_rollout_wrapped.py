import torch
from accelerate import Accelerator

from grpo_cli.train.builtin import byte_tokenizer, tiny_llama
from grpo_cli.train.rollout.engine import Request, SamplingSettings
from grpo_cli.train.rollout.make import make_engine


def test_the_wrapper_of_accelerate_is_out_of_the_way_while_generating_and_back_afterwards() -> None:
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, 0)
    engine = make_engine("graph", model, tokenizer)
    settings, requests = SamplingSettings(max_tokens=4, temperature=0.0), [Request([1, 2, 3], 2)]
    alone = engine.generate(requests, settings)
    prepared = Accelerator(cpu=True, mixed_precision="bf16").prepare(model)
    assert prepared is model
    wrapper = model.forward
    seen: list[bool] = []
    model.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    assert engine.generate(requests, settings) == alone
    assert seen
    assert not any(seen)
    assert model.forward == wrapper
