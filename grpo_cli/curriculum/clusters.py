"""Rows in clusters of like ones, each from its easiest row to its hardest: what `select: ads` moves its windows over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.errors import DataError


@dataclass(frozen=True, slots=True)
class Clusters:
    """Every row in one cluster, by its place among the training rows.

    `members` of a cluster that is `ranked` go from easy to hard, those of any other by their place: its rows have no
    difficulty before they were drawn.
    """

    members: tuple[tuple[int, ...], ...]
    ranked: tuple[bool, ...]

    def as_json(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """For the run folder, rows by their ids."""
        return [
            {"ranked": ranked, "rows": [ids[row] for row in rows]}
            for rows, ranked in zip(self.members, self.ranked, strict=True)
        ]

    @classmethod
    def from_json(cls, read: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> Clusters:
        """Back from there; rows that are gone since are left out, clusters keep their numbers.

        Raises:
            DataError: rows that belong to no cluster.
        """
        place = {row_id: row for row, row_id in enumerate(ids)}
        known = {row_id for cluster in read for row_id in cluster["rows"]}
        new = [row_id for row_id in ids if row_id not in known]
        if new:
            raise DataError(
                f"{len(new):,} of {len(ids):,} training rows were not there when the run was begun, such as `{new[0]}`:"
                " they belong to no cluster",
                hint="resume with the rows of the run, or start another run on all of them",
            )
        members = tuple(tuple(place[i] for i in cluster["rows"] if i in place) for cluster in read)
        return cls(members, tuple(bool(cluster["ranked"]) for cluster in read))
