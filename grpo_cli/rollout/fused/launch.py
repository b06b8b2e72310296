"""Torch-facing calls of the Triton kernels: each allocates the output, works out strides and blocks, and launches one kernel.

How this works: a kernel gets pointers, strides and sizes; blocks are powers of two (`block_of`), lanes beyond a width are
masked. Kernels are imported inside the functions, because Triton exists only with some builds of torch. The formulas
are in the kernels; the order of sums in a block affects the last bit of a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import PLAIN, AttentionForm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from grpo_cli.rollout.decoding.state import Batch


# Launch sizes for a width: Triton accepts only powers of two, for lanes and for warps.

LANES_PER_WARP = 256
"""Number of elements for one warp, eight a thread."""
MOST_WARPS = 8


def block_of(width: int) -> int:
    """The lanes that hold `width` numbers in one block: the next power of two."""
    return 1 << max(0, width - 1).bit_length()


def warps_of(block: int) -> int:
    """Warps for a block, a power of two from 1 to `MOST_WARPS`; `block` is one as well."""
    return min(MOST_WARPS, max(1, block // LANES_PER_WARP))


ATTENTION_BLOCK, ATTENTION_WARPS, ATTENTION_STAGES = 64, 4, 2
PROGRAMS = 528
"""Number of programs that share the rows of a norm's backward pass: four for each multiprocessor of a large GPU."""


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    scale: float,
    angles: tuple[Tensor, Tensor] | None = None,
    *,
    form: AttentionForm = PLAIN,
) -> Tensor:
    """Stores one new key and value a row and attends to the row's columns up to them, reading each once.

    Args:
        query: [rows, heads, 1, width].
        key: [rows, key heads, 1, width], the new ones.
        value: [rows, key heads, 1, value width].
        keys: [rows, key heads, columns, width], the layer's buffer; column `position[i]` of row i is written.
        values: the same, with the value width.
        position: [rows] int64, the column of each row's new token.
        scale: what scores are multiplied with.
        angles: cosine and sine, [columns, width] each; with them query and key come as before the rotary embedding.
        form: window, cap and sinks of the layer.

    Returns:
        [rows, 1, heads, value width] in the query's type.
    """
    import torch

    from grpo_cli.rollout.fused.kernels import attend_kernel

    rows, heads, _, width = query.shape
    kept, value_width = key.shape[1], value.shape[-1]
    out = torch.empty((rows, 1, heads, value_width), dtype=query.dtype, device=query.device)
    group = heads // kept
    # every pointer argument needs a value: without angles or sinks pass the query, which is then not read
    cosine, sine = angles if angles is not None else (query, query)
    # one program a row and key head: query heads of a group read their keys once, together
    attend_kernel[rows, kept](
        query, key, value, cosine, sine, keys, values, position, query if form.sinks is None else form.sinks, out,
        scale, 1.0 if form.cap is None else form.cap,
        query.stride(0), query.stride(1), key.stride(0), key.stride(1), value.stride(0), value.stride(1),
        keys.stride(0), keys.stride(1), keys.stride(2), values.stride(0), values.stride(1), values.stride(2),
        out.stride(0), out.stride(2),
        GROUP=group,
        # a matrix unit multiplies 16 rows at least; rows beyond the group are masked
        PADDED=max(16, block_of(group)),
        WIDTH=width,
        WIDE=max(16, block_of(width)),
        VALUE_WIDTH=value_width,
        VALUE_WIDE=max(16, block_of(value_width)),
        BLOCK=ATTENTION_BLOCK,
        ROTATE=angles is not None,
        WINDOW=form.window or 0,
        CAPPED=form.cap is not None,
        SINKS=form.sinks is not None,
        num_warps=ATTENTION_WARPS,
        num_stages=ATTENTION_STAGES,
    )  # fmt: skip
    return out


def norm(x: Tensor, weight: Tensor, epsilon: float, add_one: bool) -> Tensor:
    """Root mean square norm over the last dimension (arXiv 1910.07467), in float32 inside.

    Args:
        x: [..., width]; copied where it does not lie together.
        weight: [width].
        epsilon: added to the mean square.
        add_one: Gemma's form: times 1 + weight, rounded once.

    Returns:
        [..., width], in the type of the product of both; of `x` with `add_one`.
    """
    import torch

    from grpo_cli.rollout.fused.kernels import rmsnorm_kernel

    x = x.contiguous()
    width = x.shape[-1]
    # Llama's code multiplies by the weight outside of the cast, so that a float32 weight gives a float32 result
    kind = x.dtype if add_one else torch.promote_types(x.dtype, weight.dtype)
    out = torch.empty(x.shape, dtype=kind, device=x.device)
    block = block_of(width)
    rmsnorm_kernel[(x.numel() // width,)](
        x, weight, out, epsilon, width, ADD_ONE=add_one, BLOCK=block, num_warps=warps_of(block)
    )
    return out


def add_norm(residual: Tensor, delta: Tensor, weight: Tensor, epsilon: float, kind: torch.dtype) -> Tensor:
    """Adds `delta` to `residual` [rows, width] in place; the root mean square norm of the sum, rounded to the
    residual's type, times `weight`, as `kind`."""
    import torch

    from grpo_cli.rollout.fused.kernels import add_rmsnorm_kernel

    rows, width = residual.shape
    out = torch.empty((rows, width), dtype=kind, device=residual.device)
    block = block_of(width)
    add_rmsnorm_kernel[(rows,)](residual, delta, weight, out, epsilon, width, BLOCK=block, num_warps=warps_of(block))
    return out


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Rotary embedding of queries and keys in one launch, by the signature of transformers' `apply_rotary_pos_emb`.

    Args:
        q: [batch, heads, tokens, width].
        k: [batch, key heads, tokens, width].
        cos: [1 or batch, tokens, width].
        sin: the same.

    Returns:
        Both rotated, in the dtype of the product with the angles.

    Raises:
        ValueError: another layout, or numbers of a head that do not lie together.
    """
    import torch

    if unsqueeze_dim != 1 or q.stride(-1) != 1 or k.stride(-1) != 1:
        raise ValueError("rotate takes [batch, heads, tokens, width]")
    return turn(q, k, cos, sin, torch.promote_types(q.dtype, cos.dtype))


def turn(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, kind: torch.dtype, *, back: bool = False
) -> tuple[Tensor, Tensor]:
    """Queries and keys [batch, heads, tokens, width] rotated by the angles, with dtype `kind`; `back` rotates a
    gradient back."""
    import torch

    from grpo_cli.rollout.fused.kernels import rotate_kernel

    # torch's own code multiplies in the promoted type; each product is rounded to it before the sum
    angles = torch.promote_types(q.dtype, cos.dtype)
    batch, heads, tokens, width = q.shape
    kept = k.shape[1]
    cos, sin = cos.to(angles).contiguous(), sin.to(angles).contiguous()
    new_q = torch.empty((batch, heads, tokens, width), dtype=kind, device=q.device)
    new_k = torch.empty((batch, kept, tokens, width), dtype=kind, device=q.device)
    # one table for all rows is read by a stride of 0
    angle_batch = cos.stride(0) if cos.shape[0] > 1 else 0
    rotate_kernel[(batch * tokens,)](
        q, k, cos, sin, new_q, new_k,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        angle_batch, cos.stride(1), tokens,
        QUERY_HEADS=heads, KEY_HEADS=kept,
        QUERY_WIDE=block_of(heads), KEY_WIDE=block_of(kept),
        HALF=width // 2, BLOCK=block_of(width // 2), BACK=back, num_warps=2,
    )  # fmt: skip
    return new_q, new_k


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up.

    Args:
        gate: [..., width]; rows may lie apart.
        up: the same; both may be halves of one tensor.

    Returns:
        [..., width] in the type of `gate`, the activation rounded to it before the product, as torch's two calls do.
    """
    import torch
    import triton  # type: ignore[import-not-found, unused-ignore]

    from grpo_cli.rollout.fused.kernels import silu_mul_kernel

    width = gate.shape[-1]
    flat_gate, flat_up = gate.reshape(-1, width), up.reshape(-1, width)
    # gate and up may be halves of one product: rows are a stride apart, and no copy is made
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    block = min(1024, block_of(width))
    silu_mul_kernel[(flat_gate.shape[0], triton.cdiv(width, block))](
        flat_gate, flat_up, out, flat_gate.stride(0), flat_up.stride(0), width, BLOCK=block, num_warps=4
    )
    return out


def gated_back(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients [..., width] of the two inputs of `gated`, from that of its output."""
    import torch
    import triton  # type: ignore[import-not-found, unused-ignore]

    from grpo_cli.rollout.fused.kernels import silu_mul_back_kernel

    width = gate.shape[-1]
    flat_grad, flat_gate, flat_up = (x.reshape(-1, width) for x in (grad, gate, up))
    grads = [torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) for _ in range(2)]
    block = min(1024, block_of(width))
    silu_mul_back_kernel[(flat_gate.shape[0], triton.cdiv(width, block))](
        flat_grad, flat_gate, flat_up, *grads,
        flat_grad.stride(0), flat_gate.stride(0), flat_up.stride(0), width, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return grads[0], grads[1]


def norm_back(grad: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Gradients of `norm` without `add_one`.

    Args:
        grad: [..., width], of the output.
        x: [..., width], the input.
        weight: [width].
        epsilon: as in the forward pass.

    Returns:
        Of the input [..., width], and of the weight [width]; the latter is summed in float32 in a fixed order.
    """
    import torch
    import triton  # type: ignore[import-not-found, unused-ignore]

    from grpo_cli.rollout.fused.kernels import rmsnorm_back_kernel

    width = x.shape[-1]
    flat_grad, flat_x = grad.reshape(-1, width), x.reshape(-1, width)
    block = block_of(width)
    # 4,096 numbers in flight a program, whatever the width
    rows = max(1, 4096 // block)
    programs = min(triton.cdiv(len(flat_x), rows), PROGRAMS)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    # each program writes one row, which are summed below: the order of atomic additions would vary
    parts = torch.empty((programs, width), dtype=torch.float32, device=x.device)
    rmsnorm_back_kernel[(programs,)](
        flat_grad, flat_x, weight, grad_x, parts, flat_grad.stride(0), flat_x.stride(0),
        epsilon, len(flat_x), width, programs, ROWS=rows, BLOCK=block, num_warps=8,
    )  # fmt: skip
    return grad_x, parts.sum(dim=0).to(weight.dtype)


def fused_accept(batch: Batch, logits: Tensor) -> None:
    """What `accept` does for the first rows, in one launch; plain sampling and greedy only.

    Args:
        batch: changed in place.
        logits: [n, V] of the first n rows, each row together.
    """
    from grpo_cli.rollout.fused.kernels import accept_kernel

    # one program per row reads the logits, draws, writes the outputs and advances the row, without a second launch
    out, state, settings = batch.out, batch.rows, batch.settings
    accept_kernel[(logits.shape[0],)](
        logits, out.uniform, out.tokens, out.logps, out.count, batch.is_end,
        state.token, state.position, state.sample, state.step,
        logits.stride(0), logits.shape[1], out.tokens.stride(0), out.sink, settings.max_tokens,
        1.0 if settings.greedy else float(settings.temperature),
        GREEDY=settings.greedy, BLOCK=4096, num_warps=8,
    )  # fmt: skip
