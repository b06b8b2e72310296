"""Peak memory and seconds where memory decides: attention by kernel, the update of long rows, and weights in 4 bits on a small card.

    PYTHONPATH=.:verifiers python bench/bench_memory.py attention --tokens 16384 65536
    PYTHONPATH=.:verifiers python bench/bench_memory.py update --shape qwen3-0.6b --tokens 16384 65536 --sides no selective full    # and --sides liger
    PYTHONPATH=.:verifiers python bench/bench_memory.py step --shape qwen2.5-7b --form 4bit --recompute full --cap 24

Random weights in bfloat16. `update` is one micro-batch, a prompt of 64 tokens and one completion: forward and backward pass with
Adam's state in memory, ours as `train.recompute` names it against TRL's own pass with liger's kernels. `step` generates, and
updates adapters of rank 16, through our engine and our packed update without the trainer around them. A cap of so many
GiB counts 0.7 for the process itself. Peaks are torch's own; reserved ones in brackets. One JSON line each goes to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

GIB = 2**30
CONTEXT = 0.7
"""GiB of a process beside torch's own."""
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"kind": "qwen3", "sizes": (300, 64, 96, 2, 4, 2, 16, True)},
    "bench-0.6b": {"kind": "qwen2", "sizes": (151936, 1024, 3072, 28, 16, 8, 64, True)},
    "qwen3-0.6b": {"kind": "qwen3", "sizes": (151936, 1024, 3072, 28, 16, 8, 128, True)},
    "qwen2.5-7b": {"kind": "qwen2", "sizes": (152064, 3584, 18944, 28, 28, 4, 128, False)},
    "qwen2.5-14b": {"kind": "qwen2", "sizes": (152064, 5120, 13824, 48, 40, 8, 128, False)},
}
"""Vocabulary, width, width of the MLP, layers, heads, key heads, width of a head, head tied to the embeddings."""


def build(shape: str, device: torch.device, layers: int | None = None) -> Any:
    """Random weights of a shape."""
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

    vocabulary, width, inner, deep, heads, key_heads, head, tied = SHAPES[shape]["sizes"]
    kind = {"qwen2": Qwen2Config, "qwen3": Qwen3Config}[SHAPES[shape]["kind"]]
    more = {"head_dim": head} if SHAPES[shape]["kind"] == "qwen3" else {}
    config = kind(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers or deep,
        num_attention_heads=heads, num_key_value_heads=key_heads, tie_word_embeddings=tied,
        max_position_embeddings=131072, bos_token_id=None, eos_token_id=None, pad_token_id=None, **more,
    )  # fmt: skip
    torch.manual_seed(0)
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def quantise(model: Any) -> None:
    """Each linear layer below the head in NF4 with double quantisation, one at a time."""
    import bitsandbytes as bnb

    for parent in list(model.model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is not torch.nn.Linear:
                continue
            device, data = layer.weight.device, layer.weight.data
            made = bnb.nn.Linear4bit(
                layer.in_features, layer.out_features, layer.bias is not None, compute_dtype=torch.bfloat16,
                compress_statistics=True, quant_type="nf4", device="meta",
            )  # fmt: skip
            made.weight = bnb.nn.Params4bit(data, requires_grad=False, compress_statistics=True, quant_type="nf4").to(
                device
            )
            made.bias = layer.bias
            setattr(parent, name, made)
    model.is_loaded_in_4bit = True


class Device:
    """What is measured of the device; times of the host where there is none."""

    def __init__(self) -> None:
        self.on_cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.on_cuda else "cpu")

    def wait(self) -> float:
        """Seconds, once the device is done."""
        if self.on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def restart(self) -> None:
        """Peaks count from here."""
        if self.on_cuda:
            import gc

            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peaks(self) -> dict[str, float]:
        """GiB."""
        if not self.on_cuda:
            return {"peak_gib": 0.0, "reserved_gib": 0.0}
        return {
            "peak_gib": round(torch.cuda.max_memory_allocated() / GIB, 2),
            "reserved_gib": round(torch.cuda.max_memory_reserved() / GIB, 2),
        }

    def times(self, run: Callable[[], Any], warm: int, timed: int) -> dict[str, Any]:
        """Median, least, most seconds of `timed` runs after `warm` ones."""
        for _ in range(warm):
            run()
        found = []
        for _ in range(timed):
            began = self.wait()
            run()
            found.append(self.wait() - began)
        return {
            "s": round(statistics.median(found), 4), "least": round(min(found), 4), "most": round(max(found), 4), "n": timed,
        }  # fmt: skip

    def kernels(self, run: Callable[[], Any], count: int = 6) -> dict[str, float]:
        """The longest kernels of a run, ms by name."""
        if not self.on_cuda:
            return {}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            run()
            torch.cuda.synchronize()
        rows = sorted(profiler.key_averages(), key=lambda row: -row.device_time_total)[:count]
        return {row.key[:90]: round(row.device_time_total / 1e3, 2) for row in rows}


def attention(args: argparse.Namespace, here: Device, say: Callable[..., None]) -> None:
    """Forward and backward pass of one layer's attention, by kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    for width in (64, 128):
        for tokens in args.tokens:
            sizes = [(1, heads, tokens, width) for heads in (16, 8, 8)]
            q, k, v = (torch.randn(s, device=here.device, dtype=torch.bfloat16, requires_grad=True) for s in sizes)
            pull = torch.randn(sizes[0], device=here.device, dtype=torch.bfloat16)
            cu = torch.tensor([0, tokens], device=here.device, dtype=torch.int32)

            def dense(backend: Any, q: Any = q, k: Any = k, v: Any = v, pull: Any = pull) -> None:
                with sdpa_kernel([backend]):
                    out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                out.backward(pull)

            def varlen(
                q: Any = q, k: Any = k, v: Any = v, pull: Any = pull, cu: Any = cu, tokens: int = tokens
            ) -> None:
                from torch.nn.attention.varlen import varlen_attn

                from grpo_cli.train.packed.attention import kernel_arguments

                named: dict[str, Any] = {"window_size": (-1, 0)}
                if "enable_gqa" in kernel_arguments():
                    named["enable_gqa"] = True
                a, b, c = (x[0].transpose(0, 1) for x in (q, k, v))
                varlen_attn(a, b, c, cu, cu, tokens, tokens, **named).backward(pull[0].transpose(0, 1))

            forms: dict[str, Callable[[], None]] = {
                "varlen": varlen,
                "flash": lambda dense=dense: dense(SDPBackend.FLASH_ATTENTION),  # type: ignore[misc]
                "cudnn": lambda dense=dense: dense(SDPBackend.CUDNN_ATTENTION),  # type: ignore[misc]
            }
            for name, run in forms.items():
                try:
                    found = here.times(run, 2, 3) | {"kernels": here.kernels(run, 4)}
                except (RuntimeError, ImportError) as err:
                    found = {"failed": str(err)[:200]}
                flops = 3.5 * 2 * 16 * width * tokens**2
                if "s" in found:
                    found["tflops"] = round(flops / found["s"] / 1e12)
                say(part="attention", head=width, tokens=tokens, form=name, **found)


LEAD = 64
"""Tokens of the prompt of a long row."""
Pass = Callable[[torch.Tensor, int], torch.Tensor]
"""Log-probs of a row's last tokens, with their graph."""


def own_pass(model: Any, side: str, here: Device, notes: list[str]) -> Pass:
    """Ours, as `recompute` or `recompute+offload` of the recipe has it."""
    from grpo_cli.policy.model import exclude_cudnn_attention
    from grpo_cli.rollout.fused.patches import patched
    from grpo_cli.rollout.fused.update import update_patches
    from grpo_cli.train.packed.recompute import Keeping
    from grpo_cli.train.packed.score import ScoreNumerics
    from grpo_cli.train.packed.self_check import difference, unfit
    from grpo_cli.train.packed.source import PackedSource

    exclude_cudnn_attention()
    how, _, offload = side.partition("+")
    numbers = ScoreNumerics(torch.bfloat16 if here.on_cuda else None, keeping=Keeping(how, bool(offload)))  # type: ignore[arg-type]
    patches = update_patches(model, torch.bfloat16) if here.on_cuda else []
    for joined in (False, True) if here.on_cuda else ():
        if why := unfit(model, numbers) or difference(model, numbers, patches, joined=joined):
            notes.append(why)
    source = PackedSource(model, numbers, notes.append, None, captures=False)  # type: ignore[arg-type]
    stack = ExitStack()  # stand-ins stay in: the backward pass makes layers again with them
    stack.enter_context(patched(patches))
    return lambda ids, tokens: source._scored(source.plan(ids, torch.ones_like(ids), tokens))[0]


def liger_pass(model: Any, side: str, here: Device, notes: list[str]) -> Pass:
    """TRL's own, of what its trainer makes of a model with `use_liger_kernel`."""
    from trl.trainer.utils import add_fused_lm_head

    try:
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False)
    except Exception as err:  # noqa: BLE001 - said in the table
        notes.append(f"without liger: {err}"[:100])
    add_fused_lm_head(model, 1.0, False, ("log_probs", "entropy"))
    if side.endswith("full"):
        model.gradient_checkpointing_enable({"use_reentrant": False})

    def run(ids: torch.Tensor, tokens: int) -> torch.Tensor:
        labels = ids.clone()
        labels[:, :-tokens] = -100
        named = {"attention_mask": torch.ones_like(ids), "labels": labels, "use_cache": False}
        with torch.autocast(here.device.type, torch.bfloat16, enabled=here.on_cuda):
            return model(input_ids=ids, fused_lm_head=True, **named).log_probs[:, -tokens:]  # type: ignore[no-any-return]

    return run


def update(args: argparse.Namespace, here: Device, say: Callable[..., None]) -> None:
    """One long row forward and backward. TRL's side needs a call of its own: ours sets torch's order of kernels for the process."""
    for side in args.sides:
        model = build(args.shape, here.device, args.layers).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=here.on_cuda)
        notes: list[str] = []
        forward = (liger_pass if side.startswith("liger") else own_pass)(model, side, here, notes)
        for tokens in args.tokens:
            generator = torch.Generator().manual_seed(tokens)
            ids = torch.randint(3, model.config.vocab_size - 2, (1, LEAD + tokens), generator=generator).to(here.device)
            pull = torch.randn(1, tokens, generator=generator).to(here.device) / tokens
            kept: list[torch.Tensor] = []

            def run(
                forward: Pass = forward, ids: Any = ids, tokens: int = tokens, pull: Any = pull, kept: Any = kept
            ) -> None:
                logps = forward(ids, tokens)
                (logps * pull).sum().backward()  # type: ignore[no-untyped-call]
                kept[:] = [logps.detach()]

            try:
                model.zero_grad(set_to_none=True)
                run()
                grad = model.model.layers[0].mlp.down_proj.weight.grad.float().norm()
                optimizer.step()
                here.restart()
                found = here.times(run, 1, args.timed) | here.peaks()
                found["tokens_s"] = round(tokens / found["s"])
                found["logps"], found["grad"] = round(float(kept[0].mean()), 4), round(float(grad), 6)
                if args.profile:
                    found["kernels"] = here.kernels(run)
            except torch.OutOfMemoryError as err:
                found = {"failed": str(err)[:120]}
            say(part="update", shape=args.shape, tokens=tokens, side=side, notes=notes, **found)
        del model, optimizer, forward, run
        here.restart()


def step(args: argparse.Namespace, here: Device, say: Callable[..., None]) -> None:
    """Whole steps of adapters: rollout, update in micro-batches, optimizer."""
    from grpo_cli.policy.model import attach_lora, exclude_cudnn_attention
    from grpo_cli.recipe.sections.inputs import Lora
    from grpo_cli.rollout.engine import Request, SamplingSettings
    from grpo_cli.rollout.fused.patches import patched
    from grpo_cli.rollout.fused.update import update_patches
    from grpo_cli.rollout.graph.engine import make_graph_engine
    from grpo_cli.train.packed.recompute import Keeping
    from grpo_cli.train.packed.score import ScoreNumerics
    from grpo_cli.train.packed.self_check import difference, replay_difference, unfit
    from grpo_cli.train.packed.source import PackedSource

    exclude_cudnn_attention()
    model = build(args.shape, here.device, args.layers)
    if args.form == "4bit":
        quantise(model)
    model = attach_lora(model, Lora(r=16))
    here.restart()
    if args.cap and here.on_cuda:
        whole = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction((args.cap - CONTEXT) * GIB / whole)
    notes: list[str] = []
    held = torch.cuda.memory_allocated() / GIB if here.on_cuda else 0.0
    autocast = torch.bfloat16 if here.on_cuda else None
    engine = make_graph_engine(model, set(), tokenizer=None, max_rows=args.rows, autocast=autocast, note=notes.append)
    began = here.wait()
    patches = update_patches(model, autocast) if here.on_cuda else []
    numbers = ScoreNumerics(autocast, keeping=Keeping(args.recompute, args.offload))
    why = unfit(model, numbers) or difference(model, numbers, patches)
    uncaptured = "on a CPU" if not here.on_cuda else replay_difference(model, numbers, patches)
    notes += [f"packed: {why}", f"captured: {uncaptured}", f"self-checks {here.wait() - began:.1f} s"]
    source = PackedSource(model, numbers, notes.append, None, captures=uncaptured is None)  # type: ignore[arg-type]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=here.on_cuda)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(3, model.config.vocab_size - 2, (args.prompts, args.prompt_tokens), generator=generator)
    for number in range(args.steps):
        marks = [here.wait()]
        requests = [Request(prompt.tolist(), args.group) for prompt in prompts]
        done = engine.generate(requests, SamplingSettings(args.new, seed=number))
        marks.append(here.wait())
        rows = engine._store.rows if engine._store is not None else 0
        engine.make_way()
        model.train()
        lengths, off = [], []
        with patched(patches):
            for prompt, group in zip(prompts, done, strict=True):
                for at in range(0, args.group, args.micro):
                    part = group[at : at + args.micro]
                    ids = torch.stack([torch.cat([prompt, torch.tensor(one.token_ids)]) for one in part]).to(
                        here.device
                    )
                    laid = source.plan(ids, torch.ones_like(ids), args.new)
                    logps, _ = source._scored(laid)
                    sampled = torch.tensor([one.logps for one in part], device=here.device)
                    off.append((logps.detach() - sampled).abs().mean())
                    pull = torch.randn(logps.shape, device=here.device, dtype=logps.dtype) / 1e4
                    (logps * pull).sum().backward()
                    lengths.append(len(part) * args.new)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        marks.append(here.wait())
        say(
            part="step", shape=args.shape, form=args.form, recompute=args.recompute, offload=args.offload, cap=args.cap,
            micro=args.micro, step=number, generate_s=round(marks[1] - marks[0], 2), update_s=round(marks[2] - marks[1], 2),
            whole_s=round(marks[2] - marks[0], 2), held_gib=round(held, 2), rows=rows, tokens=sum(lengths),
            released=engine._store is None, off=round(float(torch.stack(off).mean()), 4), notes=notes if number == 0 else [],
            captures=getattr(engine.stepper, "captures", 0), **here.peaks(),
        )  # fmt: skip
        if args.profile and number == args.steps - 2:
            say(
                part="decode", kernels=here.kernels(partial(engine.generate, requests, SamplingSettings(32, seed=9)), 8)
            )


def main() -> None:
    """Prints one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("attention", "update", "step"))
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 65536])
    parser.add_argument("--sides", nargs="+", default=["no", "selective", "full"])
    parser.add_argument("--timed", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--form", choices=("bf16", "4bit"), default="4bit")
    parser.add_argument("--recompute", choices=("no", "selective", "full"), default="no")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--cap", type=float, default=0.0, help="GiB")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--new", type=int, default=1024)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--rows", type=int, default=None, help="samples that decode at once")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "bench_memory.jsonl")
    args = parser.parse_args()

    def say(**found: Any) -> None:
        print(json.dumps(found), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps(found) + "\n")

    {"attention": attention, "update": update, "step": step}[args.part](args, Device(), say)


if __name__ == "__main__":
    main()
