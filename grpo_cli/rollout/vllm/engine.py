"""The engine for vLLM. TRL owns vLLM (start, weight sync, colocate or server); this engine sends it our prompts and
returns its samples.

It always uses the recipe's sampling settings, because TRL fixed them when it started vLLM; so evaluation uses another
engine. Turns of episodes need seeds and limits of their own, so they go directly to the vLLM object that TRL holds in
this process. Log-probs are vLLM's: TRL corrects the loss for their difference to the model's own.

How this works: `starting` surrounds the construction of TRL's trainer, which starts vLLM; `attach` then gives this engine the
trainer. `generate` sends prompts through TRL's own generation, or, for turns of episodes, through `sample_from` to the vLLM that
TRL holds here. In both cases `finisher` cuts tokens after a stop text.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.contract import CausalLM, Tokenizer
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.rollout.decoding.sampling import sample_keys
from grpo_cli.rollout.engine import Completion, OnFinish, OnProgress, Request, SamplingSettings, check_requests
from grpo_cli.rollout.stop_words import finisher, stop_words
from grpo_cli.rollout.vllm.server import ServerWatch, watched

if TYPE_CHECKING:
    from vllm import LLM


class VllmEngine:
    """Generates through the trainer it is attached to."""

    kind = ENGINES["vllm"]

    def __init__(
        self,
        end_ids: Collection[int],
        context: int | None,
        vocabulary: int,
        watch: ServerWatch | None = None,
        tokenizer: Tokenizer | None = None,
        banned: Collection[int] = (),
    ) -> None:
        self.end_ids, self.context, self.vocabulary = end_ids, context, vocabulary
        self.watch, self.tokenizer, self.banned = watch, tokenizer, banned
        self.trainer: Any = None

    @classmethod
    def of(cls, policy: Policy, watch: ServerWatch | None = None) -> VllmEngine:
        """For this policy; vLLM's own context may be shorter, which is known before the run (`sample.vllm`)."""
        return cls(policy.end_ids, policy.context, policy.vocabulary, watch, policy.tokenizer, policy.banned)

    def attach(self, trainer: Any) -> None:
        """Set the trainer that holds TRL's vLLM client, after it was created."""
        self.trainer = trainer

    def generate(
        self,
        requests: Sequence[Request],
        settings: SamplingSettings,
        on_finish: OnFinish | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[list[Completion]]:
        """Completions in the order of the requests, all of which ask for the same number.

        Raises:
            ServerLost: the server it generates with is gone, or refuses.
        """
        from trl import GRPOTrainer

        assert self.trainer is not None, "no trainer attached"
        check_requests(requests, settings, context=self.context, vocabulary=self.vocabulary)
        if not requests:
            return []
        if requests[0].slot is not None:
            own = self.trainer.vllm_generation
            # use TRL's own counter, so that weights are sent once a step, whichever call comes first
            if self.trainer.state.global_step != self.trainer._last_loaded_step:
                own.sync_weights()
                self.trainer._last_loaded_step = self.trainer.state.global_step
            return sample_from(
                own.llm, requests, settings, self.end_ids, self.banned, self.tokenizer, on_finish, on_progress
            )
        # TRL groups prompts by `num_generations`: one number for all of a call
        n = requests[0].n
        assert all(request.n == n for request in requests)
        prompts = [request.prompt_ids for request in requests for _ in range(n)]
        with watched(self.watch):
            # of the class: the trainer's own method asks this engine; TRL takes each prompt n times, and n
            ids, logps = GRPOTrainer._generate_single_turn(self.trainer, prompts, None, {}, n)
        finished = finisher(stop_words(settings.stop, self.tokenizer), self.end_ids)
        flat = [finished(list(tokens), list(values)) for tokens, values in zip(ids, logps, strict=True)]
        for place, completion in enumerate(flat) if on_finish else ():
            on_finish(place // n, place % n, completion)  # type: ignore[misc]
        if on_progress:
            on_progress(len(flat), len(flat))
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    def release(self) -> None:
        """TRL puts vLLM to sleep where the recipe asks for it (`sample.vllm.enable_sleep_mode`)."""


@contextmanager
def openable(model: CausalLM, tokenizer: Tokenizer) -> Iterator[None]:
    """While TRL starts vLLM, which opens the model by its name: one made on the spot or read from a .gguf has no name
    that can be opened, and has that of a copy meanwhile, with the tokenizer in its folder. The weights are sent anew anyway."""
    base: Any = causal_model(model)
    name = str(base.name_or_path)
    if name and not name.endswith(".gguf"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="grpo-vllm-") as folder:
        base.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        base.name_or_path = folder
        try:
            yield
        finally:
            base.name_or_path = name


@contextmanager
def starting(model: CausalLM, tokenizer: Tokenizer) -> Iterator[None]:
    """While TRL starts vLLM in this process.

    Raises:
        SetupError: vLLM does not start; in its own words, with the setting that helps.
    """
    without_flashinfer()
    take_port()
    try:
        with openable(model, tokenizer):
            yield
    # vLLM has no exception class of its own: any of these may report too little memory; the first line is the reason
    except (ImportError, OSError, RuntimeError, ValueError, AssertionError) as err:
        words = first_line(err)
        # vLLM's start allocates most of its memory and opens a port: what users met there has a hint of its own
        lower, hint = words.lower(), "set `sample.engine: auto`"
        if "flashinfer" in lower:
            hint = "pip install flashinfer-python, or set the environment variable VLLM_USE_FLASHINFER_SAMPLER=0"
        elif "address already in use" in lower:
            hint = "set the environment variable MASTER_PORT to a port that is free"
        elif "memory" in lower or "kv cache" in lower:
            hint = f"lower `sample.vllm.gpu_memory_utilization` or `sample.vllm.max_model_length`, or {hint}"
        raise SetupError(f"vLLM did not start: {words}", hint=hint) from err


def without_flashinfer() -> None:
    """Makes vLLM sample with kernels of its own where the package `flashinfer` is missing, unless that is set otherwise."""
    if importlib.util.find_spec("flashinfer") is None:
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")


def take_port() -> None:
    """Makes the vLLM of a run on one process wait for itself at a port that the system picks, unless one is set: TRL takes 29500 as
    long as nobody listens there yet, and of two runs that start together the second then ends."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not os.environ.get("MASTER_PORT"):
        with socket.socket() as probe:
            probe.bind(("", 0))
            os.environ["MASTER_PORT"] = str(probe.getsockname()[1])


def first_line(err: BaseException) -> str:
    """The first line of an error's message, shortened; the name of its class if the message is empty."""
    lines = str(err).strip().splitlines()
    return lines[0][:200] if lines else type(err).__name__


# One call of a vLLM in this process; every sample has its own seed and limit.

UNLIKELY = -100.0
"""vLLM's lowest bias of a logit."""


def sample_from(
    llm: LLM,
    requests: Sequence[Request],
    settings: SamplingSettings,
    end_ids: Collection[int],
    banned: Collection[int],
    tokenizer: Tokenizer | None,
    on_finish: OnFinish | None = None,
    on_progress: OnProgress | None = None,
) -> list[list[Completion]]:
    """Completions in the order of the requests, `n` for each; a `prefix` counts towards the limit."""
    from vllm import SamplingParams

    places = [(r, s) for r, request in enumerate(requests) for s in range(request.n)]
    if not places:
        return [[] for _ in requests]
    keys: Sequence[int | None] = [None] * len(places)
    if settings.seed is not None or all(request.seed is not None for request in requests):
        keys = [key >> 1 for key in sample_keys(requests, settings.seed or 0)]  # vLLM's seeds are signed
    answers = llm.generate(
        [{"prompt_token_ids": requests[request].ids} for request, _ in places],
        [
            SamplingParams(
                # to vLLM the prefix is part of the prompt, which its limit does not count
                max_tokens=settings.max_tokens - len(requests[request].prefix),
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                min_p=settings.min_p,
                repetition_penalty=settings.repetition_penalty,
                seed=key,
                stop_token_ids=sorted(end_ids),
                # the log-prob of the drawn token only
                logprobs=0,
                # vLLM searches stop texts in decoded text; without any, decoding is unnecessary
                detokenize=bool(settings.stop),
                **stop_and_ban(settings.stop, banned),
            )
            for (request, _), key in zip(places, keys, strict=True)
        ],
        use_tqdm=False,
    )
    finished = finisher(stop_words(settings.stop, tokenizer), end_ids)
    # vLLM returns answers in the order of the prompts, whatever ended first
    done: list[list[Completion]] = [[] for _ in requests]
    for (request, sample), answer in zip(places, answers, strict=True):
        output = answer.outputs[0]
        ids = list(output.token_ids)
        logps = [float(at[token].logprob) for at, token in zip(output.logprobs, ids, strict=True)]
        completion = finished(ids, logps)
        done[request].append(completion)
        if on_finish:
            on_finish(request, sample, completion)
    if on_progress:
        on_progress(len(places), len(places))
    return done


def stop_and_ban(stop: Sequence[str], banned: Collection[int]) -> dict[str, Any]:
    """`sample.stop` and `sample.ban` as vLLM's parameters. vLLM removes a stop text from the text but not from the
    tokens, and applies biases before it computes log-probs."""
    words: dict[str, Any] = {}
    if stop:
        words |= {"stop": list(stop), "include_stop_str_in_output": True, "skip_special_tokens": False}
    # the lowest bias that vLLM accepts; a token with probability e^-100 is never drawn
    if banned:
        words["logit_bias"] = dict.fromkeys(sorted(banned), UNLIKELY)
    return words
