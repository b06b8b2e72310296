"""What `grpo init` writes: a commented recipe and sample rows for each task, kept as the files themselves.

They are copied byte for byte except for the line `model:`, `max_tokens` where that model has room for less, and settings that are
chosen for a card; so what is tested here is what people get.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from grpo_cli.errors import SetupError, UsageError, why_unwritten

TASKS = ("math", "code", "regex", "json", "custom", "environment")
DEFAULT_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
MOST_TOKENS = {"builtin:tiny": 160}
"""Of an answer, of models whose context is small: a letter is a token there, and the prompt comes first."""


def files(task: str, model: str = DEFAULT_MODEL) -> dict[str, Path]:
    """The files of a task by the name they get; the embedded model has a `custom` task that it can learn."""
    home = Path(__file__).resolve().parent
    own = home / f"{task}-{model.partition(':')[2]}"
    folder = own if model.startswith("builtin:") and own.is_dir() else home / task
    found = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".jsonl", ".py"))
    return {path.name: path for path in found}


def write_text(file: Path, text: str, overwrite: bool = False) -> Path:
    """Write one file, making its folder.

    Raises:
        UsageError: it is there already and `overwrite` is not set.
        SetupError: it cannot be written.
    """
    if file.exists() and not overwrite:
        raise UsageError(f"`{file}` is there already", hint="name another folder, or say --force")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as err:
        raise SetupError(f"cannot write: {why_unwritten(err)}", place=str(file)) from err
    return file


def write(
    task: str,
    folder: Path,
    model: str = DEFAULT_MODEL,
    overwrite: bool = False,
    edited: Callable[[str], str] = lambda text: text,
) -> list[Path]:
    """Write the files of a task into a folder, all or none, the recipe as `edited` makes it; the paths written.

    Raises:
        UsageError: a file is there already and `overwrite` is not set.
        SetupError: the folder cannot be written.
    """
    targets = {folder / name: path for name, path in files(task, model).items()}
    there = [path for path in targets if path.exists()]
    if there and not overwrite:
        raise UsageError(f"`{there[0]}` is there already", hint="name another folder, or say --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, source in targets.items():
            text = source.read_text(encoding="utf-8")
            if target.suffix == ".yaml":
                text = edited(_with_model(text, model))
            target.write_text(text, encoding="utf-8")
    except OSError as err:
        raise SetupError(f"cannot write: {why_unwritten(err)}", place=str(folder)) from err
    return sorted(targets)


def _with_model(text: str, model: str) -> str:
    text = text.replace(f"model: {DEFAULT_MODEL}\n", f"model: {model}\n", 1)
    if (most := MOST_TOKENS.get(model)) is None:
        return text
    return re.sub(r"(?<=  max_tokens: )\d+", lambda found: str(min(int(found[0]), most)), text)
