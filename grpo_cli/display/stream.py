"""A run does not end because its progress cannot be shown: a closed pipe, a terminal that is gone, a full disk."""

from __future__ import annotations

import errno
import os
from typing import TextIO

GONE = (errno.EPIPE, errno.EIO)
"""What a write says after the reader of a pipe, or a terminal, has gone."""


def put(stream: TextIO, text: str) -> None:
    """Write and flush. What a full disk does not take is dropped, as in `train.log`, which has the same lines.

    Once the reader has gone, this and all that others write there goes nowhere.

    Raises:
        UnicodeEncodeError: the stream cannot spell it; nothing was written.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as err:
        if err.errno in GONE:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
