"""Generating with and without old completions, the policy having drifted in between: `PYTHONPATH=. python bench/bench_reuse_engine.py`.

Weights are random: only shapes matter. Drift is normal noise on every weight, in shares of its tensor's own spread; drift 0
shows what rounding alone rejects. Seconds are wall clock on CUDA and CPU seconds elsewhere, scoring included.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from bench_rollout import SHAPES, build_model, build_requests, measure

from grpo_cli.rollout.engine import SamplingSettings
from grpo_cli.rollout.make import make_engine
from grpo_cli.rollout.reuse.engine import PrefixReuse, reuse_metrics


def main() -> None:
    """Prints one JSON object: the settings, and for each drift and lenience what is kept and seconds plain / reused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="quickstart")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=12)
    parser.add_argument("--new", type=int, default=40)
    parser.add_argument("--end-share", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--drift", type=float, nargs="+", default=[0.0, 0.003, 0.01, 0.03, 0.1])
    parser.add_argument("--lenience", type=float, nargs="+", default=[1.0, 1.65])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--autocast", action="store_true", help="bf16 over float32 weights")
    args = parser.parse_args()
    if args.device == "cpu":
        torch.set_num_threads(1)
    model = build_model(args.shape, args.device, torch.float32)
    ends = list(range(int(args.end_share * SHAPES[args.shape]["vocab_size"])))
    half = torch.bfloat16 if args.autocast else None
    engine = make_engine("graph", model, end_ids=ends, autocast=half)
    requests = build_requests(args, SHAPES[args.shape]["vocab_size"])
    key = "seconds" if args.device == "cuda" else "cpu_seconds"

    def settings(seed: int) -> SamplingSettings:
        return SamplingSettings(args.new, seed=seed)

    before = {name: value.clone() for name, value in model.state_dict().items()}
    lines: list[dict[str, Any]] = []
    for lenience in args.lenience:
        reuse = PrefixReuse(engine, model, lenience, autocast=half)
        reuse.history.update(dict(enumerate(engine.generate(requests, settings(0)))))
        drafts = reuse.history.drafts(range(len(requests)))
        for drift in args.drift:
            torch.manual_seed(2)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(drift * parameter.std() * torch.randn_like(parameter))
            kept: dict[str, float] = {}

            def plain() -> int:
                return sum(
                    len(c.token_ids) for group in engine.generate(requests, settings(1)) for c in group
                )

            def reused(
                reuse: PrefixReuse = reuse, drafts: Any = drafts, kept: dict[str, float] = kept
            ) -> int:
                every = [c for group in reuse.generate(drafts, requests, settings(1)) for c in group]
                kept |= reuse_metrics(every)
                return sum(len(c.token_ids) for c in every)

            for warm in (plain, reused):
                warm()
            seconds = [measure(call, args.repeat, args.device)[key] for call in (plain, reused)]
            lines.append(
                {"lenience": lenience, "drift": drift}
                | {name: round(value, 4) for name, value in kept.items()}
                | {"plain_s": round(seconds[0], 4), "reused_s": round(seconds[1], 4)}
                | {"ratio": round(seconds[0] / seconds[1], 3)}
            )
            model.load_state_dict(before)
    print(json.dumps({"settings": vars(args), "runs": lines}, indent=1))


if __name__ == "__main__":
    main()
