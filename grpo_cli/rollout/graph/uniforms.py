"""One uniform number for each (sample, step), from a counter and not from a stream: which samples share a batch, and
in what order they finish, then changes nothing. Duplicate prompts in one call differ by their occurrence number.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.rollout.engine import Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15


def sample_keys(requests: Sequence[Request], seed: int) -> list[int]:
    """A 64-bit key for every sample, in order; equal (seed, prompt and what is begun, occurrence, sample) give equal keys."""
    keys = []
    seen: Counter[bytes] = Counter()
    for request in requests:
        base = seed if request.seed is None else request.seed
        prompt = b",".join(str(token).encode() for token in request.ids)
        head = b"%d:%s" % (base, prompt)
        digest = hashlib.blake2b(b"%d:%s" % (seen[head], head), digest_size=8).digest()
        seen[head] += 1
        first = int.from_bytes(digest, "little")
        keys += [(first + GOLDEN * sample) & (2**64 - 1) for sample in range(request.n)]
    return keys


def uniforms(keys: Sequence[int], steps: int) -> NDArray[np.float32]:
    """[samples, steps] numbers in [0, 1) with 24 random bits each."""
    import numpy as np

    start = _mix(np.asarray(keys, dtype=np.uint64))
    counter = np.arange(1, steps + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = _mix(start[:, None] + counter[None, :]) >> np.uint64(40)
    return (bits.astype(np.float32) * np.float32(2**-24)).astype(np.float32)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every input bit flips every output bit with probability one half."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
