"""The verifier `sql`: a query is right if it returns the rows that the gold query returns, on every database of its row.

Both queries run in the sandbox, each in a process of its own; the rows are compared here. Order counts only where the gold
query orders its rows; rows that are equal in what it orders by may come in any order.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.program.command import source_of
from grpo_verifiers.program.compare import CompareRule, same
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.inside.wall import values as wire
from grpo_verifiers.sandbox.lane import Lane, limits_of, memory_files, read_file
from grpo_verifiers.sandbox.lanes import Lanes
from grpo_verifiers.sandbox.sandboxed import SandboxedVerifier
from grpo_verifiers.verdict import Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, Sample

TAGS = ("sql", "sqlite", "sqlite3")
MOST_QUERY = 64 << 10
MOST_BYTES = 8 << 20
TOLERANCE = 1e-9
ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
TERM = re.compile(r"(?P<name>[\w.]+)(\s+(asc|desc))?(\s+nulls\s+(first|last))?", re.IGNORECASE)
QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)")
"""Strings, names in quotes and comments; SQLite ends a comment that is never closed with the text."""


@dataclass(frozen=True)
class SqlOptions:
    """Options of `sql`."""

    timeout: float = 4.0
    """CPU seconds for a query on one database."""
    mem_mb: int = 512
    """Address space of a run."""
    max_rows: int = 10_000
    """A query that returns more rows is wrong."""
    ordered: str = "auto"
    """auto: order counts if the gold query has ORDER BY at its end; always; never."""
    lanes: int = 0
    """Runs at the same time; 0: cores less GPUs."""
    sandbox: str | dict[str, str] = "landlock"
    """The least isolation accepted: namespaces | landlock | weak, also as {least: …}."""


@dataclass(frozen=True, slots=True)
class SqlGold:
    """A compiled row: scripts that make the databases, the gold query or the gold rows, whether order counts."""

    schemas: tuple[str, ...]
    query: str | None
    rows: tuple[tuple[Any, ...], ...] | None
    is_ordered: bool


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What a query came to: tagged rows, or why there are none (`limit`: its own fault in time or memory)."""

    rows: list[Any] | None
    why: str = ""
    is_limit: bool = False
    names: tuple[str, ...] = ()


class SchemaFails(ValueError):
    """The row's own script does not run: nothing is known about the query."""


class SqlVerifier(SandboxedVerifier):
    """Rows: `schema` (a script, or a list of scripts), and `answer` (the gold query) or `rows` (the gold rows)."""

    Options = SqlOptions
    columns = ("schema",)

    def __init__(self, options: SqlOptions) -> None:
        super().__init__(options)
        self._least = tiers.least_tier(options.sandbox)
        self._golds: dict[tuple[str, str], QueryAnswer] = {}

    def compile(self, row: Mapping[str, Any]) -> SqlGold:
        """The question of a row: schemas, and the gold query or the gold rows.

        Raises:
            BadGold: `schema` is no script or list of them, there is neither query nor rows, or rows go with several schemas.
        """
        schema = row.get("schema")
        schemas = [schema] if isinstance(schema, str) else schema
        if not isinstance(schemas, list) or not schemas or not all(isinstance(s, str) and s.strip() for s in schemas):
            raise BadGold("`schema` is a script that makes the database, or a list of such scripts")
        query, rows = row.get("answer"), row.get("rows")
        if isinstance(rows, list) and all(isinstance(r, list | tuple) for r in rows):
            if len(schemas) != 1:
                raise BadGold("`rows` go with one `schema`; with several give the gold query as `answer`")
            return SqlGold(tuple(schemas), None, tuple(map(tuple, rows)), self.options.ordered == "always")
        if not isinstance(query, str) or not query.strip():
            raise BadGold("needs the gold query as `answer`, or the gold rows as `rows`")
        is_ordered = self.options.ordered == "always" or (self.options.ordered == "auto" and orders_rows(query))
        return SqlGold(tuple(schemas), query, None, is_ordered)

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The gold query, where the row has one."""
        query = row.get("answer")
        return f"```sql\n{query}\n```" if isinstance(query, str) else None

    def find_tier(self) -> tiers.Tier:
        """The best tier of this machine."""
        return tiers.choose(self._least)

    def judge_one(self, lanes: Lanes, sample: Sample) -> Verdict:
        """The verdict on one query."""
        started = time.perf_counter()
        query = source_of(sample.turn, TAGS)
        if query is None or not query.strip():
            return no_answer("no_query")
        if len(query) > MOST_QUERY:
            return over_limit("query_size")
        try:
            return self.in_a_slot(
                lanes, lambda slot: self._compare(slot.lane("sql"), sample.gold, query.strip(), started), started
            )
        except SchemaFails as err:
            return error("schema", str(err), time.perf_counter() - started)

    def _compare(self, lane: Lane, gold: SqlGold, query: str, started: float) -> Verdict:
        for schema in gold.schemas:
            wanted = self._gold(lane, gold, schema)
            if wanted.rows is None:
                return error("gold_query", wanted.why, time.perf_counter() - started)
            got = self._ask(lane, schema, query)
            seconds = time.perf_counter() - started
            if got.is_limit:
                return over_limit(got.why, query, seconds)
            if got.rows is None:
                return wrong(query, "no_rows", seconds, 0.0, got.why)
            sizes = tie_sizes(gold.query or "", wanted.names, wanted.rows) if gold.is_ordered else None
            if len(got.rows) > self.options.max_rows or not same_rows(wanted.rows, got.rows, gold.is_ordered, sizes):
                return wrong(query, "rows_differ", seconds)
        return right(query, f"databases:{len(gold.schemas)}", time.perf_counter() - started)

    def _gold(self, lane: Lane, gold: SqlGold, schema: str) -> QueryAnswer:
        if gold.rows is not None or gold.query is None:
            return QueryAnswer([[wire.encode(v) for v in row] for row in gold.rows or ()])
        found = self._golds.get((schema, gold.query))
        if found is None:
            found = self._ask(lane, schema, gold.query)
            if not found.is_limit:  # a machine may have been busy: what ran out of time is asked again
                self._golds[schema, gold.query] = found
        return found

    def _ask(self, lane: Lane, schema: str, query: str) -> QueryAnswer:
        payload = {"schema": schema, "query": query, "most": self.options.max_rows}
        with memory_files(payload=json.dumps(payload).encode(), results=None) as fds:
            limits = limits_of("sql", self.options.timeout, self.options.mem_mb, output_bytes=MOST_BYTES)
            report = lane.run("query", fds, limits)
            size = os.fstat(fds["results"]).st_size
            text = read_file(fds["results"], MOST_BYTES)
        if report.killed:
            return QueryAnswer(None, "time", True)
        if report.exit_code != 0 or size >= MOST_BYTES:
            return QueryAnswer(None, "memory" if report.exit_code else "output", True)
        try:
            answer = json.loads(text)
            rows = answer.get("v")
        except (ValueError, AttributeError):
            return QueryAnswer(None, "bad_reply")
        if "broken" in answer:
            raise SchemaFails(str(answer["broken"]))
        good = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
        names = tuple(map(str, answer.get("names", ())))
        return QueryAnswer(rows if good else None, str(answer.get("x", "")), names=names)


def orders_rows(query: str) -> bool:
    """Whether a query has ORDER BY outside of parentheses, strings and comments."""
    return ORDER.search(_outside(query)) is not None


def _outside(query: str) -> str:
    """The query without what stands in parentheses, strings and comments."""
    depth, plain = 0, []
    for char in QUOTED.sub(" ", query):
        depth += (char == "(") - (char == ")")
        plain.append(char if depth == 0 and char != ")" else "(" if char == ")" else "")
    return "".join(plain)


def tie_sizes(query: str, names: Sequence[str], rows: Sequence[list[Any]]) -> list[int] | None:
    """How many rows in turn are equal in what the query orders by, where it orders by columns that it returns.

    Such rows may come in any order. None where that is not known: by expressions, or with a limit, which may cut ties apart.
    """
    found = list(ORDER.finditer(plain := _outside(query)))
    tail = plain[found[-1].end() :] if found else ""
    if not found or re.search(r"\b(limit|offset)\b", tail, re.IGNORECASE):
        return None
    places = [_place(term, names) for term in tail.strip().rstrip(";").split(",")]
    if None in places:
        return None
    keys = [[row[p] for p in places if p is not None and p < len(row)] for row in rows]
    return [len(list(same_keys)) for _, same_keys in itertools.groupby(keys)]


def _place(term: str, names: Sequence[str]) -> int | None:
    """Which column a term of ORDER BY is, None if it is more than a column."""
    match = TERM.fullmatch(term.strip())
    if match is None:
        return None
    name = match["name"].lower()
    if name.isdigit():
        return int(name) - 1
    at = [i for i, other in enumerate(names) if other.lower() == name.rpartition(".")[2]]
    return at[0] if len(at) == 1 else None


def same_rows(wanted: list[Any], got: list[Any], is_ordered: bool, sizes: Sequence[int] | None = None) -> bool:
    """Whether two lists of tagged rows are equal, as multisets unless order counts; numbers by value.

    `sizes`: how many rows in turn may stand in any order among themselves.
    """
    if len(wanted) != len(got):
        return False
    sizes = [1] * len(wanted) if sizes is None else sizes
    if not is_ordered:
        sizes = [len(wanted)]
    wanted, got = _sorted_within(wanted, sizes), _sorted_within(got, sizes)
    rule = CompareRule(tolerance=TOLERANCE)
    return all(
        len(w) == len(g) and all(_same_cell(a, b, rule) for a, b in zip(w, g, strict=True))
        for w, g in zip(wanted, got, strict=True)
    )


def _sorted_within(rows: list[Any], sizes: Sequence[int]) -> list[Any]:
    ends = list(itertools.accumulate(sizes))
    parts = (rows[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return [
        row
        for part in parts
        for row in (sorted(part, key=lambda row: [_cell_rank(cell) for cell in row]) if len(part) > 1 else part)
    ]


def _same_cell(wanted: object, got: object, rule: CompareRule) -> bool:
    if type(wanted) is int and type(got) is int:
        return wanted == got  # a tolerance is for sums of reals; whole numbers are exact
    return same(wire.decode(wanted), got, rule)


def _cell_rank(cell: object) -> tuple[Any, ...]:
    if cell is None:
        return (0, 0)
    if isinstance(cell, int | float):
        # rounded, so that sums that differ in the last bits sort alike; whole numbers by all of their digits
        return (1, float(f"{float(cell):.9e}"), cell if type(cell) is int else 0)
    return (2, cell) if isinstance(cell, str) else (3, json.dumps(cell))
