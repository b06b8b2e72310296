"""Importing torch, transformers and TRL makes half a million objects that live as long as the process.

Python's collector goes through them again and again while they are made (a quarter of the import's time, measured) and
at every full collection after that. Inside this block it rests, and afterwards it leaves what was made there alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """For imports: nothing that is made inside is ever collected as part of a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
