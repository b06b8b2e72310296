"""A checkpoint written as a plain Hugging Face folder, and such a folder sent to the hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from grpo_cli.errors import SetupError
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.resilience.opened import find_place, open_model


def write_folder(checkpoint: str, out: Path) -> Policy:
    """Write the model of a checkpoint or run, LoRA merged into its base, with tokenizer and recipe; return what was written.

    Raises:
        SetupError: no such checkpoint, or the folder cannot be written.
    """
    place = find_place(checkpoint, None, [])
    policy = open_model(place, torch.device("cpu"))
    if hasattr(policy.model, "peft_config"):
        policy = replace(policy, model=policy.model.merge_and_unload())
    try:
        policy.model.save_pretrained(out)
        policy.tokenizer.save_pretrained(out)
        (out / "recipe.yaml").write_text(to_yaml(place.recipe))
    except OSError as err:
        raise SetupError(f"cannot write `{out}`: {err.strerror}") from err
    return policy


def push_folder(policy: Policy, repository: str) -> None:
    """Send model and tokenizer to a repository of the hub.

    Raises:
        SetupError: the hub does not take them.
    """
    try:
        policy.model.push_to_hub(repository)
        policy.tokenizer.push_to_hub(repository)
    except OSError as err:
        raise SetupError(
            f"cannot push to `{repository}`: {err}", hint="is `hf auth login` done and the hub reachable?"
        ) from err
