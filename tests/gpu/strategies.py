"""Each `launch.strategy` on the GPUs of this machine: the run of plain ranks, resumed, with an adapter, and what it takes.

    PYTHONPATH=.:verifiers python tests/gpu/strategies.py --out FOLDER [--part equal adapter memory] [--ranks 2]

Prints a table a part; exit code 1 where a run failed or differs. Without a GPU the ranks are processes of the CPU.
"equal" trains in float32, where shards and plain ranks must agree; "memory" in bfloat16 on random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
STRATEGIES = ("ddp", "zero1", "fsdp2", "zero2", "zero3")
RECIPE = """\
grpo: 1
model: {{path: {model}, dtype: {dtype}{lora}}}
data:
  train: {{from: tasks:addition3, limit: 64}}
  prompt: "{{question}}"
  answer: "{{answer}}"
verify:
  regex: {{pattern: "[02468].*[13579]"}}
sample: {{prompts: 8, group: 8, max_tokens: {tokens}}}
train: {{steps: {steps}, lr: {lr}, seed: 3}}
monitor: {{kl: {{every: 1, rows: 8}}}}
run: {{name: run, save_every: {steps}, keep: 9}}
"""


class Bench:
    """Runs of one part; what failed is remembered."""

    def __init__(self, out: Path, ranks: int) -> None:
        self.out, self.failed = out, False
        self.processes = f"launch.{'gpus' if torch.cuda.is_available() else 'cpu_ranks'}={ranks}"

    def train(self, recipe: Path, folder: Path, strategy: str, *more: str) -> Path | None:
        """A run's folder, or None after its last words were printed."""
        sets = [f"run.dir={folder}", f"launch.strategy={strategy}", self.processes]
        command = [sys.executable, "-m", "grpo_cli", "train", str(recipe)]
        command += [part for one in sets for part in ("--set", one)]
        done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            self.failed = True
            print(f"{strategy} failed with {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}", flush=True)
            return None
        return folder / "run"

    def write(self, name: str, **values: Any) -> Path:
        """A recipe."""
        self.out.mkdir(parents=True, exist_ok=True)
        file = self.out / f"{name}.yaml"
        file.write_text(RECIPE.format(**({"lora": "", "tokens": 24} | values)))
        return file

    def equal(self, strategies: list[str]) -> None:
        """Float32: completions and weights as with plain ranks, and as without a break after resuming."""
        half, recipe = 3, self.write("equal", model="builtin:tiny", dtype="float32", steps=6, lr=1e-4)
        print("strategy  completions as ddp, by step        weights apart  after resuming  grad norms apart")
        plain: Path | None = None
        for strategy in strategies:
            run = self.train(recipe, self.out / "equal" / strategy, strategy, "--set", f"run.save_every={half}")
            if run is None:
                continue
            plain = plain or run
            same = " ".join(f"{_same(plain, run, step):4.0%}" for step in range(1, 7))
            norms = zip(_metrics(plain), _metrics(run), strict=True)
            norm = max(abs(a["grad_norm"] - b["grad_norm"]) for a, b in norms)
            broken = self.out / "equal" / f"{strategy}-broken"
            shutil.copytree(run, broken)
            shutil.rmtree(broken / "checkpoints/step-000006")
            more = ("--set", f"run.save_every={half}", "--resume", str(broken))
            again = self.train(recipe, self.out / "equal" / strategy, strategy, *more)
            resumed = f"{_apart(run, broken, 6):.1e}" if again else "failed"
            apart = _apart(plain, run, 6)
            self.failed |= apart > 1e-3 or _same(plain, run, 1) < 1
            print(f"{strategy:9} {same}   {apart:13.1e}  {resumed:>14}  {norm:.1e}", flush=True)

    def adapter(self, strategies: list[str]) -> None:
        """LoRA in the precision of this machine: it runs, and the adapter moves as with plain ranks."""
        recipe = self.write("adapter", model="builtin:tiny", dtype="auto", lora=", lora: {r: 8}", steps=3, lr=1e-2)
        print("strategy  adapter apart from ddp's  KL at the last step")
        plain: Path | None = None
        for strategy in strategies:
            run = self.train(recipe, self.out / "adapter" / strategy, strategy)
            if run is not None:
                plain = plain or run
                print(f"{strategy:9} {_apart(plain, run, 3):24.1e}  {_metrics(run)[-1]['kl']:.2e}", flush=True)

    def memory(self, strategies: list[str], width: int, layers: int) -> None:
        """Bfloat16, a model of some size: what a process holds, the card's peak, and a step's seconds."""
        model = _random_model(self.out / "model", width, layers)
        recipe = self.write("memory", model=model, dtype="auto", steps=4, lr=1e-6, tokens=128)
        print("strategy  held MiB  peak GiB  s/step  update s  first batch as ddp  KL at step 1")
        plain: Path | None = None
        for strategy in strategies:
            run = self.train(recipe, self.out / "memory" / strategy, strategy)
            if run is None:
                continue
            plain, rows = plain or run, _metrics(run)
            step, update = (statistics.median(r[f"time/{k}"] for r in rows[1:]) for k in ("step", "update"))
            peak = rows[-1].get("memory/peak_gib", float("nan"))
            held, first = rows[-1]["memory/held_mib"], _same(plain, run, 1)
            print(
                f"{strategy:9} {held:8.0f}  {peak:8.2f}  {step:6.2f}  {update:8.2f}  {first:18.0%}  {rows[0]['kl']:.1e}",
                flush=True,
            )
            shutil.rmtree(run / "checkpoints")


def _metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "grad_norm" in row]


def _same(one: Path, other: Path, step: int) -> float:
    """Share of equal completions of a step."""
    name = f"samples/step-{step:06d}.jsonl"
    texts = [[json.loads(line)["completion"] for line in (run / name).read_text().splitlines()] for run in (one, other)]
    return statistics.fmean(a == b for a, b in zip(*texts, strict=True))


def _apart(one: Path, other: Path, step: int) -> float:
    """Largest difference of a weight in two checkpoints."""
    folder = f"checkpoints/step-{step:06d}"
    name = next((one / folder).glob("*model.safetensors")).name
    a, b = load_file(one / folder / name), load_file(other / folder / name)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    return max(float((a[key].float() - b[key].float()).abs().max()) for key in a)


def _random_model(folder: Path, width: int, layers: int) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    from grpo_cli.policy.model import byte_tokenizer

    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 256),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:,.0f} M parameters")
    model.save_pretrained(folder)
    return folder


def main() -> int:
    """The parts asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", nargs="+", default=["equal", "adapter", "memory"])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    asked = parser.parse_args()
    os.environ.setdefault("GRPO_CACHE", str(asked.out / "cache"))
    bench = Bench(asked.out, asked.ranks)
    if "equal" in asked.part:
        bench.equal(asked.strategies)
    if "adapter" in asked.part:
        bench.adapter(asked.strategies)
    if "memory" in asked.part:
        bench.memory(asked.strategies, asked.width, asked.layers)
    return int(bench.failed)


if __name__ == "__main__":
    sys.exit(main())
