"""Triton kernels of the decode step. Each rounds to the model's type exactly where the PyTorch code that it replaces
does, so that rollout and training see the same numbers; `patches.py` and `self_check.py` compare them before one is
used.

How this works: `launch.py` calls each kernel with pointers, strides and sizes. In the order of the file these are
attention over a row's cache, the norms, rotation, the gated product with its gradients, the norm's gradients, and last
`accept_kernel`, which draws a row's token and moves the row on. Each writes its result through the pointers and returns
nothing.
"""

# Triton reads these functions' source: annotations other than tl.constexpr would change their meaning.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit
def attend_kernel(
    query, new_key, new_value, cosine, sine, keys, values, position, sinks, out,
    scale, cap,
    query_row, query_head, key_row, key_head, value_row, value_head,
    keys_row, keys_head, keys_column, values_row, values_head, values_column,
    out_row, out_head,
    GROUP: tl.constexpr, PADDED: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_WIDE: tl.constexpr,
    BLOCK: tl.constexpr, ROTATE: tl.constexpr,
    WINDOW: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    """One program a (row, key head): stores the new key and value, then one pass over the row's columns. `ROTATE` turns
    query and key to the row's column first, by row `position` of the tables `cosine` and `sine` [columns, width].
    `WINDOW` (0: none) starts that pass at the first column in sight; tanh(x) is 2 sigmoid(2x) - 1."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    group = tl.arange(0, PADDED)
    d = tl.arange(0, WIDE)
    e = tl.arange(0, VALUE_WIDE)
    here = tl.load(position + row)

    q_at = query + row * query_row + (head * GROUP + group)[:, None] * query_head + d[None, :]
    q = tl.load(q_at, mask=(group < GROUP)[:, None] & (d < WIDTH)[None, :], other=0.0)
    k_new = tl.load(new_key + row * key_row + head * key_head + d, mask=d < WIDTH, other=0.0)
    if ROTATE:
        # the two halves of a head are turned against each other: a number's partner is half a head away, and the first
        # half takes it with a minus (the layout of Llama, not of the paper, which pairs neighbours)
        across = tl.where(d < WIDTH // 2, WIDTH // 2, -(WIDTH // 2))
        sign = tl.where(d < WIDTH // 2, -1.0, 1.0)
        c = tl.load(cosine + here * WIDTH + d, mask=d < WIDTH, other=0.0)
        s = tl.load(sine + here * WIDTH + d, mask=d < WIDTH, other=0.0).to(tl.float32) * sign
        kind = cosine.dtype.element_ty
        c = c.to(tl.float32)
        q_half = tl.load(q_at + across[None, :], mask=(group < GROUP)[:, None] & (d < WIDTH)[None, :], other=0.0)
        k_half = tl.load(new_key + row * key_row + head * key_head + d + across, mask=d < WIDTH, other=0.0)
        # each product is rounded before the sum, because PyTorch writes both to memory: without it the last bit differs
        q = (q.to(tl.float32) * c[None, :]).to(kind).to(tl.float32) + (q_half.to(tl.float32) * s[None, :]).to(kind).to(
            tl.float32
        )
        k_new = (k_new.to(tl.float32) * c).to(kind).to(tl.float32) + (k_half.to(tl.float32) * s).to(kind).to(tl.float32)
        q = q.to(kind)
        k_new = k_new.to(kind)
    v_new = tl.load(new_value + row * value_row + head * value_head + e, mask=e < VALUE_WIDTH, other=0.0)
    k_new = k_new.to(keys.dtype.element_ty)
    v_new = v_new.to(values.dtype.element_ty)
    q = q.to(keys.dtype.element_ty)
    k_row = keys + row * keys_row + head * keys_head
    v_row = values + row * values_row + head * values_head
    # this program alone reads the column it writes, and takes it from registers below: no barrier is needed
    tl.store(k_row + here * keys_column + d, k_new, mask=d < WIDTH)
    tl.store(v_row + here * values_column + e, v_new, mask=e < VALUE_WIDTH)

    top = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1) * scale
    if CAPPED:
        top = cap * (2.0 * tl.sigmoid(2.0 * top / cap) - 1.0)
    # 0 of the type that the loop counts in
    first = here * 0
    if WINDOW > 0:
        first = tl.maximum(here - WINDOW + 1, 0)
    # a running softmax (Milakov and Gimelshein, arXiv 1805.02867) that begins at the new column: its weight is e^0, so
    # the peak is finite from the start and no -inf - -inf can arise
    total = tl.full([PADDED], 1.0, tl.float32)
    mixed = tl.zeros([PADDED, VALUE_WIDE], tl.float32) + v_new.to(tl.float32)[None, :]
    # blocks begin at multiples of BLOCK whatever the window; what lies before it is masked
    for start in range(first // BLOCK * BLOCK, here, BLOCK):
        column = start + tl.arange(0, BLOCK)
        live = (column < here) & (column >= first)
        k = tl.load(
            k_row + column[:, None] * keys_column + d[None, :], mask=live[:, None] & (d < WIDTH)[None, :], other=0.0
        )
        # ieee: in TF32 the products of float32 models would lose 13 bits that the plain code keeps
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if CAPPED:
            score = cap * (2.0 * tl.sigmoid(2.0 * score / cap) - 1.0)
        score = tl.where(live[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        # what was summed under the old peak shrinks to the new one
        keep = tl.exp(top - higher)
        v = tl.load(
            v_row + column[:, None] * values_column + e[None, :],
            mask=live[:, None] & (e < VALUE_WIDTH)[None, :],
            other=0.0,
        )
        mixed = mixed * keep[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        total = total * keep + tl.sum(weight, 1)
        top = higher
    if SINKS:
        # a sink takes its share of the likelihood and adds nothing: only the total grows
        sink = tl.load(sinks + head * GROUP + group, mask=group < GROUP, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, sink)
        mixed = mixed * tl.exp(top - higher)[:, None]
        total = total * tl.exp(top - higher) + tl.exp(sink - higher)
    mixed = mixed / total[:, None]
    out_at = out + row * out_row + (head * GROUP + group)[:, None] * out_head + e[None, :]
    tl.store(out_at, mixed.to(out.dtype.element_ty), mask=(group < GROUP)[:, None] & (e < VALUE_WIDTH)[None, :])


@triton.jit
def rmsnorm_kernel(x, weight, out, epsilon, width, ADD_ONE: tl.constexpr, BLOCK: tl.constexpr):
    """Root mean square norm of one row; `ADD_ONE` is Gemma's form, which scales by 1 + weight before it rounds."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    values = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
    scaled = values * tl.rsqrt(tl.sum(values * values, 0) / width + epsilon)
    w = tl.load(weight + at, mask=inside, other=0.0)
    kind = out.dtype.element_ty
    if ADD_ONE:
        # Gemma multiplies in float32 and rounds once; Llama rounds the normed row first, then multiplies
        result = scaled * (1.0 + w.to(tl.float32))
    else:
        result = w.to(tl.float32) * scaled.to(x.dtype.element_ty).to(tl.float32)
    tl.store(out + row * width + at, result.to(kind), mask=inside)


@triton.jit
def add_rmsnorm_kernel(residual, delta, weight, out, epsilon, width, BLOCK: tl.constexpr):
    """Adds `delta` to one row of `residual`, in place, and writes the row's root mean square norm."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    kind = residual.dtype.element_ty
    summed = tl.load(residual + row * width + at, mask=inside, other=0.0).to(tl.float32)
    summed += tl.load(delta + row * width + at, mask=inside, other=0.0).to(tl.float32)
    # the residual is kept in the model's type, so the norm must see it rounded
    summed = summed.to(kind)
    tl.store(residual + row * width + at, summed, mask=inside)
    values = summed.to(tl.float32)
    scaled = values * tl.rsqrt(tl.sum(values * values, 0) / width + epsilon)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, (w * scaled.to(kind).to(tl.float32)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotate_kernel(
    query, key, cosine, sine, new_query, new_key,
    query_batch, query_head, query_token, key_batch, key_head, key_token, angle_batch, angle_token,
    tokens, QUERY_HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, QUERY_WIDE: tl.constexpr, KEY_WIDE: tl.constexpr,
    HALF: tl.constexpr, BLOCK: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Rotary embedding of one token's query and key heads; the results are [batch, heads, tokens, width]. `BACK` gives
    the gradient of the inputs from that of the outputs. Products are rounded to the type of the angles."""
    place = tl.program_id(0).to(tl.int64)
    batch, token = place // tokens, place % tokens
    at = tl.arange(0, BLOCK)
    inside = at < HALF
    angle = batch * angle_batch + token * angle_token + at
    cos_first = tl.load(cosine + angle, mask=inside, other=0.0).to(tl.float32)[None, :]
    cos_second = tl.load(cosine + angle + HALF, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin_first = tl.load(sine + angle, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin_second = tl.load(sine + angle + HALF, mask=inside, other=0.0).to(tl.float32)[None, :]
    if BACK:
        # the inverse of a rotation is its transpose: sines change their sign and their halves
        first_back = -sin_second
        sin_second = -sin_first
        sin_first = first_back
    kind = cosine.dtype.element_ty
    # unrolled: queries and keys differ in heads and strides, which are constants of the program
    for part in tl.static_range(2):
        if part == 0:
            head = tl.arange(0, QUERY_WIDE)
            live = (head < QUERY_HEADS)[:, None] & inside[None, :]
            source = query + batch * query_batch + token * query_token + head[:, None] * query_head + at[None, :]
            target = new_query + ((batch * QUERY_HEADS + head)[:, None] * tokens + token) * (2 * HALF) + at[None, :]
        else:
            head = tl.arange(0, KEY_WIDE)
            live = (head < KEY_HEADS)[:, None] & inside[None, :]
            source = key + batch * key_batch + token * key_token + head[:, None] * key_head + at[None, :]
            target = new_key + ((batch * KEY_HEADS + head)[:, None] * tokens + token) * (2 * HALF) + at[None, :]
        first = tl.load(source, mask=live, other=0.0).to(tl.float32)
        second = tl.load(source + HALF, mask=live, other=0.0).to(tl.float32)
        left = (first * cos_first).to(kind).to(tl.float32) + (-second * sin_first).to(kind).to(tl.float32)
        right = (second * cos_second).to(kind).to(tl.float32) + (first * sin_second).to(kind).to(tl.float32)
        tl.store(target, left.to(kind).to(new_query.dtype.element_ty), mask=live)
        tl.store(target + HALF, right.to(kind).to(new_query.dtype.element_ty), mask=live)


@triton.jit
def silu_mul_kernel(gate, up, out, gate_row, up_row, width, BLOCK: tl.constexpr):
    """silu(gate) x up, a row and a block of its columns a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    kind = out.dtype.element_ty
    g = tl.load(gate + row * gate_row + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=inside, other=0.0).to(tl.float32)
    # rounded between activation and product, as two calls of PyTorch do
    activated = (g / (1.0 + tl.exp(-g))).to(kind).to(tl.float32)
    tl.store(out + row * width + at, (activated * u).to(kind), mask=inside)


@triton.jit
def silu_mul_back_kernel(grad, gate, up, grad_gate, grad_up, grad_row, gate_row, up_row, width, BLOCK: tl.constexpr):
    """The gradients of `silu_mul_kernel`'s inputs; the activation is made again instead of kept."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    kind = grad_gate.dtype.element_ty
    d = tl.load(grad + row * grad_row + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + row * gate_row + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-g))
    tl.store(grad_up + row * width + at, (d * (g * share).to(kind).to(tl.float32)).to(kind), mask=inside)
    # d silu(g) / dg, with share = sigmoid(g)
    inner = share * (1.0 + g * (1.0 - share))
    tl.store(grad_gate + row * width + at, (d * u * inner).to(kind), mask=inside)


@triton.jit
def rmsnorm_back_kernel(
    grad, x, weight, grad_x, parts, grad_row, x_row, epsilon, rows, width, programs,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the root mean square norm: of its input, and one row of `parts` a program of its weight's."""
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = (at < width)[None, :]
    w = tl.load(weight + at, mask=at < width, other=0.0).to(tl.float32)[None, :]
    kind = grad_x.dtype.element_ty
    total = tl.zeros((BLOCK,), tl.float32)
    # programs take stretches in turn, so that which rows a program sums does not depend on who is free: the sum of
    # the weight's gradient has one order
    for start in range(program * ROWS, rows, programs * ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        live = (row < rows) & inside
        values = tl.load(x + row * x_row + at[None, :], mask=live, other=0.0).to(tl.float32)
        d = tl.load(grad + row * grad_row + at[None, :], mask=live, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(values * values, 1) / width + epsilon)[:, None]
        scaled = values * scale
        total += tl.sum(d * scaled.to(kind).to(tl.float32), 0)
        pulled = d * w
        # what the norm takes away: the part of the gradient along the normed row itself
        along = tl.sum(pulled * scaled, 1)[:, None] / width
        tl.store(grad_x + row * width + at[None, :], (scale * (pulled - scaled * along)).to(kind), mask=live)
    tl.store(parts + program * width + at, total, mask=at < width)


@triton.jit
def accept_kernel(
    logits, uniform, out_tokens, out_logps, out_count, is_end,
    token, position, sample, step,
    logits_row, vocabulary, out_row, sink, max_tokens, temperature,
    GREEDY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a row: draws its token in two passes over the logits and a look at one block, and moves the row on."""
    row = tl.program_id(0).to(tl.int64)
    start_of_row = logits + row * logits_row
    at = tl.arange(0, BLOCK)
    which = tl.load(sample + row)
    now = tl.load(step + row)
    # idle rows point at the sink, so that every row does the same work and no branch is needed
    where = which * out_row + now

    top = float("-inf")
    best = 0
    for start in range(0, vocabulary, BLOCK):
        x = tl.load(start_of_row + start + at, mask=start + at < vocabulary, other=float("-inf")).to(tl.float32)
        x = x / temperature
        high = tl.max(x, 0)
        if GREEDY:
            best = tl.where(high > top, start + tl.argmax(x, 0), best)
        top = tl.maximum(top, high)
    total = 0.0
    for start in range(0, vocabulary, BLOCK):
        x = tl.load(start_of_row + start + at, mask=start + at < vocabulary, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x / temperature - top), 0)
    if GREEDY:
        chosen = best
    else:
        # the third pass adds the same sums of blocks in the same order, so both agree on where a block ends
        aim = tl.load(uniform + where) * total
        before = 0.0
        held = 0.0
        block = 0
        # The last block that has weight, if rounding lifts the aim past them all.
        for start in range(0, vocabulary, BLOCK):
            x = tl.load(start_of_row + start + at, mask=start + at < vocabulary, other=float("-inf")).to(tl.float32)
            weight = tl.sum(tl.exp(x / temperature - top), 0)
            take = (before <= aim) & (weight > 0)
            held = tl.where(take, before, held)
            block = tl.where(take, start, block)
            before += weight
        x = tl.load(start_of_row + block + at, mask=block + at < vocabulary, other=float("-inf")).to(tl.float32)
        weight = tl.exp(x / temperature - top)
        # A weightless token adds nothing to the sum and so is never the first to pass the aim.
        past = (held + tl.cumsum(weight, 0) > aim) & (weight > 0)
        first = tl.min(tl.where(past, at, BLOCK), 0)
        last = tl.max(tl.where(weight > 0, at, 0), 0)
        chosen = block + tl.where(first < BLOCK, first, last)
    # at the sampling temperature, which is what the update scores too
    picked = tl.load(start_of_row + chosen).to(tl.float32) / temperature
    tl.store(out_tokens + where, chosen)
    tl.store(out_logps + where, picked - top - tl.log(total))
    tl.store(out_count + which, now + 1)
    ended = tl.load(is_end + chosen).to(tl.int1) | (now + 1 >= max_tokens) | (which == sink)
    tl.store(token + row, chosen)
    tl.store(position + row, tl.where(ended, 0, tl.load(position + row) + 1))
    tl.store(step + row, tl.where(ended, 0, now + 1))
    tl.store(sample + row, tl.where(ended, sink, which))
