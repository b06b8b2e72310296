"""vLLM for a job that only measures: it loads the weights once from a folder, without a trainer.

Its log-probs are vLLM's processed ones: at the sampling temperature, but after truncation if the settings have any.

How this works: `open_offline` saves the policy (adapters merged) to a temporary folder, moves the policy's own model to main
memory, and starts vLLM on the folder; where that fails the model moves back and `Unfit` carries the reason. `OfflineVllm` then
generates until `release`, which gives the memory back for good.
"""

from __future__ import annotations

import copy
import gc
import os
import tempfile
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from grpo_cli.errors import SetupError
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.rollout.engine import (
    Completion,
    OnFinish,
    OnProgress,
    Request,
    SamplingSettings,
    check_requests,
    check_settings,
)
from grpo_cli.rollout.vllm.engine import first_line, sample_from, without_flashinfer
from grpo_cli.rollout.vllm.server import is_installed

if TYPE_CHECKING:
    from vllm import LLM

    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.recipe.sections.method import Sample

SHARE = 0.9
"""Default share of the GPU's memory for weights and cache: nothing else needs it here."""
STARTED_WITH = {"max_model_length": "max_model_len", "gpu_memory_utilization": "gpu_memory_utilization"} | {
    name: name for name in ("max_num_seqs", "model_impl")
}
"""Settings of `sample.vllm` that hold without a trainer too, and vLLM's own names of them."""


QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout is data
}


class Unfit(SetupError):
    """vLLM cannot generate here; the message is the reason."""


class OfflineVllm:
    """Generates from the weights it was created with; `release` frees everything for good."""

    kind = ENGINES["vllm"]

    def __init__(
        self,
        llm: LLM,
        end_ids: Collection[int],
        context: int | None,
        vocabulary: int,
        banned: Collection[int] = (),
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.llm, self.end_ids, self.context, self.vocabulary = llm, sorted(end_ids), context, vocabulary
        self.banned, self.tokenizer = banned, tokenizer

    def generate(
        self,
        requests: Sequence[Request],
        settings: SamplingSettings,
        on_finish: OnFinish | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[list[Completion]]:
        """Completions in the order of the requests, `n` for each.

        Raises:
            RecipeError, DataError: a setting without meaning, or a prompt that does not fit.
        """
        check_settings(settings)
        check_requests(requests, settings, context=self.context, vocabulary=self.vocabulary)
        assert self.llm is not None, "released"
        return sample_from(
            self.llm, requests, settings, self.end_ids, self.banned, self.tokenizer, on_finish, on_progress
        )

    def release(self) -> None:
        """Ends vLLM; its memory is free afterwards."""
        # the last reference: vLLM frees its memory when its object goes
        self.llm = None
        gc.collect()
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def open_offline(policy: Policy, sample: Sample) -> OfflineVllm:
    """vLLM with the weights of a policy, whose own model is moved to main memory.

    Raises:
        Unfit: the package is missing, the weights cannot be handed over, or they do not fit this machine.
    """
    if not is_installed():
        raise Unfit("the package `vllm` is not installed")
    if getattr(policy.model, "is_loaded_in_4bit", False):
        raise Unfit("weights in 4 bits cannot be handed over")
    # settings of the trainer's vLLM, such as sleep or the ports of the weights, have no meaning here
    given = {STARTED_WITH[name]: value for name, value in sample.vllm.items() if name in STARTED_WITH}
    # in this process, so that its memory is freed with the process
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    without_flashinfer()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    # from here on vLLM uses the device; the model returns to it only after a failure
    policy.model.to("cpu")
    with tempfile.TemporaryDirectory(prefix="grpo-vllm-") as folder:
        try:
            from vllm import LLM

            model = policy.model
            if hasattr(model, "peft_config"):
                # a copy: merging changes the weights it merges into, and measuring must not
                model = copy.deepcopy(model).merge_and_unload()
            model.save_pretrained(folder)
            policy.tokenizer.save_pretrained(folder)
            kind = policy.autocast or next(p.dtype for p in policy.model.parameters() if p.is_floating_point())
            llm = LLM(
                model=folder,
                skip_tokenizer_init=not sample.stop,  # it looks for them in text
                dtype=str(kind).removeprefix("torch."),
                logprobs_mode="processed_logprobs",
                generation_config="vllm",  # the recipe determines sampling, not the model's folder
                **{"gpu_memory_utilization": SHARE, **given},
            )
        except (ImportError, OSError, RuntimeError, ValueError) as err:
            gc.collect()
            policy.model.to(policy.device)
            raise Unfit(first_line(err)) from err
    context = min((n for n in (policy.context, given.get("max_model_len")) if n is not None), default=None)
    return OfflineVllm(llm, policy.end_ids, context, policy.vocabulary, policy.banned, policy.tokenizer)
