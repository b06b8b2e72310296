"""The completions that each row was last drawn with, in eight bytes a token: what the next visit may keep of.

Every rank holds all of them, because a row may be sampled by another rank the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.rollout.engine import Completion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Draft:
    """An old completion, the `sample`-th of its row: (T,) ids, and log-probs under the policy that gave it out last.

    `ended` says that it ended by itself; else the token limit cut it.
    """

    row: int
    sample: int
    token_ids: NDArray[np.int32]
    logps: NDArray[np.float32]
    ended: bool


class History:
    """Drafts by row."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Draft]] = {}

    def update(self, drawn: Mapping[int, Sequence[Completion]]) -> None:
        """What rows were drawn with now takes the place of what they were drawn with before."""
        import numpy as np

        for row, completions in drawn.items():
            self.rows[row] = [
                Draft(
                    row,
                    sample,
                    np.asarray(completion.token_ids, dtype=np.int32),
                    np.asarray(completion.logps, dtype=np.float32),
                    completion.finish == "stop",
                )
                for sample, completion in enumerate(completions)
            ]

    def drafts(self, rows: Sequence[int], first: int = 0) -> list[list[Draft]]:
        """Each row's drafts from sample `first` on; none of a row that is new."""
        return [self.rows.get(row, [])[first:] for row in rows]

    @property
    def nbytes(self) -> int:
        """Bytes that `save` writes, but for a small head."""
        # row 8, length 4, ended 1; then 4 of the id and 4 of the log-prob a token
        return sum(13 + 8 * len(draft.token_ids) for drafts in self.rows.values() for draft in drafts)

    def save(self, file: Path) -> None:
        """All drafts, as one safetensors file."""
        import numpy as np
        from safetensors.numpy import save_file

        every = [draft for row in sorted(self.rows) for draft in self.rows[row]]
        # concatenate refuses nothing at all
        none = [np.zeros(0)]
        columns: dict[str, NDArray[Any]] = {
            "row": np.array([draft.row for draft in every], dtype=np.int64),
            "length": np.array([len(draft.token_ids) for draft in every], dtype=np.int32),
            "ended": np.array([draft.ended for draft in every], dtype=bool),
            "token_ids": np.concatenate([draft.token_ids for draft in every] or none).astype(np.int32),
            "logps": np.concatenate([draft.logps for draft in every] or none).astype(np.float32),
        }
        save_file(columns, file)

    def load(self, file: Path) -> None:
        """Back from `save`."""
        from safetensors.numpy import load_file

        found = load_file(file)
        self.rows, end = {}, 0
        for row, length, ended in zip(
            *(found[name].tolist() for name in ("row", "length", "ended")), strict=True
        ):
            drafts, start, end = self.rows.setdefault(row, []), end, end + length
            ids, logps = (found[name][start:end].copy() for name in ("token_ids", "logps"))
            drafts.append(Draft(row, len(drafts), ids, logps, ended))
