"""A step of episodes, `grpo train` against TRL's own `environment_factory` loop on the same world, in processes of their own.

    PYTHONPATH=.:verifiers python bench/bench_episodes.py [--shape quickstart|smollm2-135m] [--turns 8] [--steps 3]

On CUDA the default is the shape of SmolLM2-135M, 32 rows x 8 episodes of 8 turns of 32 tokens; on a CPU a tiny one. Weights
are random and call no tools, so on both sides what a turn says is taken for the argument of one call (`turn_world.Walk`);
TRL is spared its parser, ours its own. Prompt, schemas, template (Qwen2.5's, as TRL ships it), turns, tokens a turn, batch
split and reward are alike; generation is each side's own. A turn hardly ever ends by itself: of the vocabulary one token in
49,152 does. `spoken` and `heard` are tokens of the model and of the world, an episode of the last step.
Seconds are wall seconds on CUDA and CPU seconds of the trainer's process elsewhere, means over the steps after the warm-up
ones; `generate` is all that makes the episodes, worlds included.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_step import Parts
from step_sides import run_side, time_recipe

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENDS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def write_chat_model(folder: Path, model: Any, rows: int) -> None:
    """Save the model with a tokenizer of its vocabulary's size that was trained on this repository's pages, Qwen2.5's chat
    template, and keydoor's layouts as rows."""
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from grpo_cli.data.tasks import task_rows

    template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    pages = [page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    size = model.config.vocab_size
    trainer = trainers.BpeTrainer(vocab_size=min(8192, size - len(ENDS)), initial_alphabet=letters, show_progress=False)
    inner.train_from_iterator([*pages, *[template] * 8], trainer)
    trained = json.loads(inner.to_str())["model"]
    vocab, merges = trained["vocab"], [tuple(pair) for pair in trained["merges"]]
    spare = (f"{a}{b}{c}" for a in letters for b in letters for c in letters)
    while len(vocab) < size - len(ENDS):  # no merge makes them: they are only ever sampled
        vocab.setdefault(next(spare), len(vocab))
    whole = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    whole.pre_tokenizer = inner.pre_tokenizer
    whole.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=whole, pad_token=ENDS[0], eos_token=ENDS[2], padding_side="left",
        additional_special_tokens=[ENDS[1]],
    )  # fmt: skip
    tokenizer.chat_template = template
    assert len(tokenizer) == size, (len(tokenizer), size)
    for held in (model.config, model.generation_config):
        held.pad_token_id, held.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    made = zip(range(rows), task_rows("keydoor", "train", {}, ""), strict=False)
    lines = [
        json.dumps(
            {name: value for name, value in fields.items() if name != "question"}
            | {"prompt": [{"role": "user", "content": fields["question"]}]}
        )
        for _, fields in made
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")


def own(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """`grpo train` on a recipe of these settings."""
    from grpo_cli.environments.tools.calls import ToolCall
    from grpo_cli.rollout.episodes import play

    parts = Parts(settings)
    seen: dict[str, Any] = {}
    play.read_calls = lambda text, form: [ToolCall("move", {"letter": text})]
    play.Episodes.open = parts.timed_generation(play.Episodes.open)  # type: ignore[method-assign]
    generate = parts.timed_generation(play.Play.generate)

    def watched(*args: Any, **named: Any) -> Any:
        found = generate(*args, **named)
        masks = [completion.mask for group in found for completion in group]
        seen.update(tokens_an_episode([[int(one) for one in mask] for mask in masks]))
        return found

    play.Play.generate = watched  # type: ignore[method-assign]
    recipe = {
        "grpo": 1,
        "model": {"path": str(folder / "model"), "dtype": settings["dtype"]},
        "data": {"train": str(folder / "rows.jsonl"), "prompt": "{prompt}"},
        "environment": {
            "trl": f"{HERE / 'turn_world.py'}:Walk",
            "max_turns": settings["turns"],
            "turn_tokens": settings["turn_tokens"],
        },
        "sample": {
            "prompts": settings["prompts"],
            "group": settings["group"],
            "max_tokens": settings["budget"],
            "micro_batch": settings["micro"],
            "engine": settings["engine"],
            "vllm": settings["vllm"],
        },
        "train": {"steps": settings["steps"] + settings["warm"] + 1, "lr": 1e-6},
        "monitor": {"kl": "off"},
        "run": {"dir": str(folder / "runs"), "save_every": 10_000},
    }
    time_recipe(recipe, folder, parts.callback)
    return parts.found() | seen


def trls(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """TRL's own trainer, generation and loop of tools; every row goes through the loss."""
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer import grpo_trainer
    from turn_world import Walk

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    parts = Parts(settings)
    seen: dict[str, Any] = {}

    def calling(tokenizer: Any, ids: list[int], **_: Any) -> dict[str, Any]:
        said = tokenizer.decode(ids, skip_special_tokens=True)
        call = {"type": "function", "function": {"name": "move", "arguments": {"letter": said}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    grpo_trainer.parse_response = calling
    total = settings["prompts"] * settings["group"]
    micro = settings["micro"] or total
    on_cuda = settings["device"] == "cuda"
    arguments = {
        "output_dir": str(folder / "plain"),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": total // micro,
        "num_generations": settings["group"],
        "max_completion_length": settings["budget"],
        "max_tool_calling_iterations": settings["turns"] - 1,
        "max_steps": settings["steps"] + settings["warm"] + 1,
        "learning_rate": 1e-6,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": not on_cuda,
        "bf16": on_cuda,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }
    dtype = torch.bfloat16 if settings["dtype"] == "bfloat16" else torch.float32
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype),
        processing_class=AutoTokenizer.from_pretrained(folder / "model", padding_side="left"),
        environment_factory=Walk,
        train_dataset=load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train"),
        args=GRPOConfig(**arguments),
        callbacks=[parts.callback()],
    )
    trainer.generation_config.max_new_tokens = settings["turn_tokens"]
    generate = parts.timed_generation(trainer._generate)

    def watched(*args: Any, **named: Any) -> Any:
        found = generate(*args, **named)
        seen.update(tokens_an_episode(found[2]))
        return found

    trainer._generate = watched
    trainer.train()
    return parts.found() | seen


def tokens_an_episode(masks: Sequence[Sequence[int]]) -> dict[str, float]:
    """Mean tokens of the model (1) and of the world (0)."""
    spoken = sum(map(sum, masks))
    return {
        "spoken": spoken / len(masks),
        "heard": (sum(map(len, masks)) - spoken) / len(masks),
        "episodes": len(masks),
    }


SIDES = {"own": own, "trl": trls}


def main() -> None:
    """Prints a JSON line a side as it ends, then one with the ratios TRL / own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["quickstart", "smollm2-135m"])
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--group", type=int)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--turn-tokens", type=int)
    parser.add_argument("--budget", type=int, help="most tokens of an episode")
    parser.add_argument("--micro", type=int, help="episodes a forward pass; all on a CPU, 64 on CUDA")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of our side")
    parser.add_argument("--trl-steps", type=int, default=1, help="timed steps of TRL's side")
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--engine", choices=["graph", "vllm"], default="graph", help="of our side")
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(SIDES[args.side](args.folder, args.settings)))
        return
    import torch
    from bench_rollout import SHAPES, build_model

    on_cuda = torch.cuda.is_available()
    shape = args.shape or ("smollm2-135m" if on_cuda else "quickstart")
    turn_tokens = args.turn_tokens or (32 if on_cuda else 8)
    settings = {
        "device": "cuda" if on_cuda else "cpu",
        "shape": shape,
        "prompts": args.prompts or (32 if on_cuda else 2),
        "group": args.group or (8 if on_cuda else 4),
        "turn_tokens": turn_tokens,
        "budget": args.budget or args.turns * (turn_tokens + 96),
        "micro": args.micro or (64 if on_cuda else None),
        "vllm": {"gpu_memory_utilization": 0.3, "max_model_length": 2048} if args.engine == "vllm" else {},
        **{key: getattr(args, key) for key in ("turns", "dtype", "warm", "engine")},
    }
    SHAPES["quickstart"]["vocab_size"] = 4096  # schemas and prompts in bytes would be most of a tiny step
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = build_model(shape, "cpu", torch.float32)
        write_chat_model(folder, model, settings["prompts"] * 16)
        found = {}
        for one in args.sides:
            steps = args.steps if one == "own" else args.trl_steps
            found[one] = run_side(__file__, one, folder, settings | {"steps": steps})
            print(json.dumps({"side": one, **found[one]}), flush=True)
    ratios = {
        key: round(found["trl"][key] / found["own"][key], 3)
        for key in ("step", "generate", "update")
        if len(found) == len(SIDES)
    }
    device = torch.cuda.get_device_name() if on_cuda else f"cpu, {torch.get_num_threads()} threads"
    print(json.dumps({"device": device, "torch": torch.__version__, "settings": settings, "ratio": ratios}))


if __name__ == "__main__":
    main()
