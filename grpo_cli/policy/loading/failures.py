"""A library's failure as one sentence: whatever class it has, a person can only mend what it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grpo_cli.errors import SetupError, UserError

MOST = 400
TELLING = (OSError, ValueError, ImportError, RuntimeError, NotImplementedError)
"""Classes whose messages are sentences; of others (a `KeyError`) the class is half of the message."""


def sentence(err: BaseException) -> str:
    """The whole message on one line, cut at the end: libraries put what helps into any of its lines."""
    text = " ".join(str(err).split())
    if not text or not isinstance(err, TELLING):
        text = f"{type(err).__name__}: {text}" if text else type(err).__name__
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


@contextmanager
def told(what: str, hint: str = "") -> Iterator[None]:
    """Failures inside become `what: the library's words`.

    Raises:
        SetupError: anything failed that is not told in a sentence already.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as err:
        raise SetupError(f"{what}: {sentence(err)}", hint=hint) from err
