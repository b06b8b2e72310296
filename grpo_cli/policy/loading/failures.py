"""Turns a library's failure, of whatever class, into one sentence for the user, and hides warnings of PEFT."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_cli.errors import DataError, SetupError, UserError

MOST = 400
SAFE = "take it from whom you trust, or begin from the weights: `model.path` may name a folder with `.safetensors`"
TELLING = (OSError, ValueError, ImportError, RuntimeError, NotImplementedError)
"""Exception classes whose messages are whole sentences. For others (a `KeyError`) the class name is added."""


def sentence(err: BaseException) -> str:
    """The whole message on one line, cut at the end: libraries put what helps into any of its lines."""
    text = " ".join(str(err).split())
    if not text or not isinstance(err, TELLING):
        text = f"{type(err).__name__}: {text}" if text else type(err).__name__
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


@contextmanager
def loading_failures(what: str, hint: str = "") -> Iterator[None]:
    """Inside, a library's failure becomes a SetupError `what: message`. Exceptions that this package raises pass
    unchanged.

    Raises:
        SetupError: a library failed, with any exception class.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as err:
        trace = err.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        # by where it was raised, not by its class: libraries and our own mistakes both raise KeyError
        if trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("grpo_cli"):
            raise
        if isinstance(err, pickle.UnpicklingError):  # torch's own text explains how to run it all the same
            raise SetupError(f"{what}: {_unread(err)}", hint=SAFE) from err
        raise SetupError(f"{what}: {sentence(err)}", hint=hint) from err


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Suppress PEFT's warnings inside: `coverage` shows which layers have an adapter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def numbers_only(place: Path) -> Iterator[None]:
    """For `torch.load(…, weights_only=True)`, which refuses what could run code.

    Raises:
        DataError: a file holds more than numbers.
    """
    try:
        yield
    except pickle.UnpicklingError as err:
        raise DataError(_unread(err), place=str(place), hint=SAFE) from err


def _unread(err: pickle.UnpicklingError) -> str:
    # it names what a file would have called; else the file is cut off, or something else
    if "global" in str(err).lower():
        return "a saved state holds more than numbers, which could run code: it is not read"
    return "a saved state cannot be read: it is cut off, or no such file"
