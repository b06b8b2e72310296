"""Compares fused kernels with the plain code on this GPU, with this model's shapes; only those that agree are used.
Without Triton, or if a kernel fails to build, a run is slower and shows one line, but never fails.

How this works: each `checked_…` builds one replacement, runs it and the plain code on the same random input, and
returns the replacement if the relative error is within rounding of the dtype, else None or nothing, with a note. Order
matters: the whole backbone is checked last, together with the parts that passed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model, evaluating, numerics
from grpo_cli.rollout.decoding.attention import attend_one
from grpo_cli.rollout.decoding.cache import PLAIN, AttentionForm, CacheLayout, FusedAttention
from grpo_cli.rollout.decoding.supports import measure_forms, measure_layout

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from grpo_cli.rollout.decoding.state import Batch
    from grpo_cli.rollout.fused.merged_weights import MergedWeights
    from grpo_cli.rollout.fused.patches import Patch


@contextmanager
def _noted(what: str, note: Callable[[str], None]) -> Iterator[None]:
    """An error inside becomes a note: building a kernel can fail in any way, but the plain code always works."""
    try:
        yield
    except Exception as err:  # noqa: BLE001
        note(f"decoding without {what}: {type(err).__name__}: {str(err)[:80]}")


def checked_attention(model: nn.Module, note: Callable[[str], None]) -> FusedAttention | None:
    """The fused decode attention if it agrees with the plain one."""
    base: Any = causal_model(model)
    heads = base.config.get_text_config().num_attention_heads
    with _noted("the fused attention", note):
        from grpo_cli.rollout.fused.launch import fused_attention

        layout = measure_layout(model)
        forms = {(f.window, f.cap, f.sinks is None): f for f in measure_forms(model)}
        error = max(attention_error(fused_attention, layout, heads, form) for form in forms.values())
        if error <= 1e-2:
            return fused_attention
        note(f"decoding without the fused attention: it is off by {error:.2g}")
    return None


def attention_error(fused: FusedAttention, layout: CacheLayout, heads: int, form: AttentionForm = PLAIN) -> float:
    """Relative error against the plain attention in float32, on random keys, values and positions."""
    import torch

    generator = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(device=layout.device, dtype=layout.dtype)

    # more than three blocks of the kernel, long enough that a window excludes some columns
    columns = 200 + (form.window or 0)
    rows, (kept, width), (_, value_width) = 7, layout.key, layout.value
    keys, values = draw(rows, kept, columns, width), draw(rows, kept, columns, value_width)
    query, key = draw(rows, heads, 1, width), draw(rows, kept, 1, width)
    value = draw(rows, kept, 1, value_width)
    # around the kernel's block of 64 columns: nothing before, one short of a block, a block, one over, the last
    position = torch.tensor([0, 1, 63, 64, 65, 130, columns - 1], device=layout.device)
    every = torch.arange(rows, device=layout.device)
    plain_keys, plain_values = keys.float().clone(), values.float().clone()
    plain_keys[every, :, position], plain_values[every, :, position] = (key[:, :, 0].float(), value[:, :, 0].float())
    column = torch.arange(columns, device=layout.device)
    hidden = column > position[:, None]
    if form.window is not None:
        hidden |= column <= position[:, None] - form.window
    mask = torch.zeros(rows, columns, device=layout.device).masked_fill_(hidden, float("-inf"))[:, None, None]
    expected = attend_one(query.float(), plain_keys, plain_values, mask, width**-0.5, form)
    got = fused(query, key, value, keys, values, position, width**-0.5, form=form).float()
    stored = torch.equal(keys[every, :, position], key[:, :, 0]) and torch.equal(
        values[every, :, position], value[:, :, 0]
    )
    return float(((got - expected).norm() / expected.norm()).detach()) if stored else float("inf")


def checked_accept(model: nn.Module, note: Callable[[str], None]) -> Callable[[Batch, Tensor], None] | None:
    """The fused sampler for logits [n, V], if it draws the same tokens as the plain one; else None, with a note of the
    reason."""
    with _noted("the fused sampler", note):
        from grpo_cli.rollout.fused.launch import fused_accept

        device = next(model.parameters()).device
        apart = max(accept_error(fused_accept, device, temperature) for temperature in (0.0, 0.7))
        if apart <= 1e-3:
            return fused_accept
        note(f"decoding without the fused sampler: it is off by {apart:.2g}")
    return None


def accept_error(fused: Callable[[Batch, Tensor], None], device: torch.device, temperature: float) -> float:
    """The largest difference in log-prob, in nats, over 61 rows of random logits [61, 9001]; infinite where more than
    a hundredth of the tokens differ, any count does, or the rows moved elsewhere.
    """
    import torch

    from grpo_cli.rollout.decoding.state import Batch, Outputs, Rows, accept
    from grpo_cli.rollout.engine import SamplingSettings

    # odd sizes: the last block of a row is a part, and rows are no power of two
    rows, vocabulary, steps = 61, 9001, 5
    generator = torch.Generator("cpu").manual_seed(0)
    logits = (3 * torch.randn(rows, vocabulary, generator=generator, device="cpu")).to(device)
    store: Any = None
    results = []
    for form in (accept, fused):
        out = Outputs.empty(rows, steps, device)
        out.uniform.copy_(torch.rand(out.uniform.shape, generator=torch.Generator("cpu").manual_seed(1), device="cpu"))
        state = Rows.empty(rows, out.sink, device)
        # two rows stay idle, as rows of a batch do
        state.sample[: rows - 2] = torch.arange(rows - 2, device=device)
        state.step[: rows - 2] = torch.arange(rows - 2, device=device) % steps
        is_end = torch.arange(vocabulary, device=device) % 3 == 0
        settings = SamplingSettings(steps, temperature=temperature)
        batch = Batch(store, state, out, is_end, is_end, settings)
        if form is accept:
            accept(batch, logits, slice(0, rows))
        else:
            fused(batch, logits)
        results.append((out, state))
    (out, state), (fused_out, fused_state) = results
    real = slice(0, out.sink)
    # rarely a uniform number falls on the other side of a boundary, because sums have another order
    same = (out.tokens[real] == fused_out.tokens[real]).float().mean() > 0.99 and torch.equal(
        out.count[real], fused_out.count[real]
    )
    moved = [torch.equal(a, b) for a, b in zip(state.snapshot(), fused_state.snapshot(), strict=True)]
    agreed = out.tokens[real] == fused_out.tokens[real]
    if not same or (bool(agreed.all()) and not all(moved)):
        return float("inf")
    return float(((out.logps[real] - fused_out.logps[real]) * agreed).abs().max())


def checked_patches(model: nn.Module, note: Callable[[str], None]) -> list[Patch]:
    """The fused norms, gates and rotary embeddings that agree with the model's own code."""
    with _noted("fused kernels", note):
        from grpo_cli.rollout.fused.patches import find_patches

        return find_patches(model)
    return []


def checked_backbone(
    model: nn.Module,
    autocast: torch.dtype | None,
    attention: FusedAttention | None,
    patches: list[Patch],
    merged: MergedWeights | None,
) -> list[Patch]:
    """The replacement of the backbone's whole decode step, if the model has the structure it is written for and its
    logits stay the same; else nothing. `attention`, `patches` and `merged` passed their checks before."""
    import torch

    from grpo_cli.rollout.fused.llama_cuda import FusedBackbone
    from grpo_cli.rollout.fused.patches import Patch

    base: Any = causal_model(model)
    if attention is None or not patches:
        return []
    try:
        replacement = FusedBackbone(base.base_model, measure_forms(base), merged, autocast)
        found = [Patch(base.base_model, "forward", replacement.forward)]
        error = backbone_error(base, attention, [*patches, *(merged.patches() if merged else [])], found)
    # The model may be any model: one with another structure fails here somehow, and keeps its own forward.
    except Exception:  # noqa: BLE001
        return []
    exact = autocast is None and next(base.parameters()).dtype == torch.float32
    return found if error <= (1e-4 if exact else 3e-2) else []


def backbone_error(base: Any, attention: FusedAttention, patches: list[Patch], replacement: list[Patch]) -> float:
    """Relative error of the logits of one decode step after prompts of unequal length."""
    import torch

    from grpo_cli.rollout.decoding.cache import Decode, KeyValueStore, Prefill
    from grpo_cli.rollout.decoding.rollout_mode import Forward, rollout_mode
    from grpo_cli.rollout.fused.patches import patched

    layout = measure_layout(base)
    vocabulary = base.get_input_embeddings().num_embeddings
    generator = torch.Generator("cpu").manual_seed(0)
    rows, columns = 5, 24
    tokens = torch.randint(vocabulary, (rows, columns), generator=generator, device="cpu").to(layout.device)
    every = torch.arange(rows, device=layout.device)
    # different lengths, to test each row's own column, angle and mask
    position = columns - 1 - 3 * every
    store = KeyValueStore(layout, rows, columns, attention)
    step = Decode(store, every, position, columns, None)
    next_token = tokens[every, position][:, None]
    places = torch.arange(columns, device=layout.device)[None].expand(rows, -1)
    with rollout_mode(base), patched(patches):
        forward = Forward(base)
        forward(Prefill(store, every, every), tokens, places, position)
        expected = forward(step, next_token, position[:, None]).float()
        with patched(replacement):
            got = forward(step, next_token, position[:, None]).float()
    return float((got - expected).norm() / expected.norm())


def checked_merged_weights(
    model: nn.Module, autocast: torch.dtype | None, note: Callable[[str], None]
) -> MergedWeights | None:
    """The model's merged matrices, under autocast in half precision, if the logits stay the same; None if there is
    nothing to merge."""
    import torch

    from grpo_cli.rollout.fused.merged_weights import MergedWeights
    from grpo_cli.rollout.fused.patches import patched

    base: Any = causal_model(model)
    merged = MergedWeights(model, autocast or next(base.parameters()).dtype)
    if not merged.groups:
        return None
    tokens = torch.arange(12, device=next(base.parameters()).device)[None] % base.get_input_embeddings().num_embeddings
    with evaluating(base), numerics(model, autocast):
        expected = base(input_ids=tokens, use_cache=False).logits.float()
        with patched(merged.patches()):
            got = base(input_ids=tokens, use_cache=False).logits.float()
    # the check alone must not keep a second copy of the weights
    merged.release()
    if float((got - expected).norm()) > 2e-2 * float(expected.norm()):
        note("generating with the model's own matrix products: side by side they give other logits")
        return None
    return merged
