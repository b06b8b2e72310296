"""A checkpoint written as a plain Hugging Face folder, and such a folder sent to the hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from grpo_cli.data.hub_access import leave_hub
from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.jobs.export.card import card_of
from grpo_cli.jobs.export.gguf.modelfile import modelfile
from grpo_cli.jobs.export.gguf.writing import check_gguf, write_gguf
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.run.lines import open_as

HUB_HINT = "is `hf auth login` done and the hub reachable?"


def write_folder(source: ModelSource, out: Path, gguf: str | None = None) -> Policy:
    """Write the model of a source, LoRA merged into its base, with tokenizer, recipe and model card; return what was written.

    With `gguf`, a precision of `writing.PRECISIONS`, also `OUT.gguf` for llama.cpp and a `Modelfile` for Ollama.

    Raises:
        SetupError: its weights cannot be loaded, the folder cannot be written, or no GGUF of this model.
    """
    policy = open_model(source, torch.device("cpu"))
    if hasattr(policy.model, "peft_config"):
        policy = replace(policy, model=policy.model.merge_and_unload())
    if gguf is not None:
        check_gguf(policy)
    try:
        policy.model.save_pretrained(out)
        policy.tokenizer.save_pretrained(out)
        (out / "recipe.yaml").write_text(to_yaml(source.recipe), encoding="utf-8")
        (out / "README.md").write_text(card_of(source.recipe, source.folder), encoding="utf-8")
        open_as(out / "README.md", out)
        if gguf is not None:
            file = out / f"{out.resolve().name}.gguf"
            write_gguf(policy, file, gguf)
            (out / "Modelfile").write_text(modelfile(policy, source.recipe, file.name), encoding="utf-8")
    except OSError as err:
        raise SetupError(f"cannot write `{out}`: {why_unwritten(err)}") from err
    return policy


def is_there(repository: str) -> bool:
    """Whether the hub has this repository, as far as one may see.

    Raises:
        SetupError: the hub cannot be asked.
    """
    if (why := leave_hub()) is not None:
        raise SetupError(f"cannot ask for `{repository}`: {why}", hint=HUB_HINT)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().repo_exists(repository)
    except (HfHubHTTPError, OSError, ValueError) as err:
        raise SetupError(f"cannot ask for `{repository}`: {err}", hint=HUB_HINT) from err


def push_folder(folder: Path, repository: str) -> None:
    """Send an exported folder to a repository of the hub, which is made where it is not there.

    Raises:
        SetupError: the hub does not take it.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().create_repo(repository, exist_ok=True)
        HfApi().upload_folder(repo_id=repository, folder_path=folder)
    except (HfHubHTTPError, OSError, ValueError) as err:
        raise SetupError(f"cannot push to `{repository}`: {err}", hint=HUB_HINT) from err
