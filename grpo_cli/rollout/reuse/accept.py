"""How much of an old completion is kept under a newer policy (SPEC-RL, arXiv 2509.23232). Pure: no model, no state.

Token t is accepted where a uniform number is below `lenience` x new / old, and the first rejection cuts. The numbers
come from a counter, as the engines' do: a run that is resumed, or another rank, cuts at the same place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.sampling import uniforms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def kept_tokens(
    old: NDArray[np.floating], new: NDArray[np.floating], chances: NDArray[np.floating], lenience: float
) -> int:
    """Tokens before the first rejection; `old` and `new` are their log-probs under the two policies, all of shape (T,).

    A log-prob that is not a number is a rejection, so that the engine meets the broken weights and says so.
    """
    import numpy as np

    ratios = np.exp(new.astype(np.float64) - old)
    # `not <`, not `>=`: a comparison with NaN is false either way, and has to reject
    rejected = np.flatnonzero(~(chances < lenience * ratios))
    return int(rejected[0]) if len(rejected) else len(old)


def chances(seed: int, samples: Sequence[tuple[int, int]], tokens: int) -> NDArray[np.float32]:
    """(N, tokens) numbers in [0, 1) for N (row, number of the sample): functions of these, the seed and the position.

    The seed has to be new at every visit of a row: with the old numbers a token that was accepted once would stay.
    """
    names = [b"keep:%d:%d:%d" % (seed, *sample) for sample in samples]  # the engines' names begin otherwise
    digests = [hashlib.blake2b(name, digest_size=8).digest() for name in names]
    return uniforms([int.from_bytes(digest, "little") for digest in digests], tokens)
