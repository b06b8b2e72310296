"""`json`: a JSON value in the completion, valid under a schema, equal to the gold, or both.

How this works: `find_json` takes the last fenced block, else the last bracketed value after the thinking; never an earlier one
that happens to fit. NaN, repeated keys and trailing text inside the value are no JSON. Then a killable worker applies the schemas of
the options and of the row: a pattern in one can backtrack for ever on the wrong text. Last `JsonComparison` compares
the value with the gold, with a bound on the work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

from grpo_verifiers.answers import AnswerVerifier, Example
from grpo_verifiers.kinds.json_reading import BadJson, find_json, parse, schema_problem
from grpo_verifiers.processes.pool import Done, LoadFailed, Pool, ProcessLimits
from grpo_verifiers.verdict import Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Unavailable

MOST_STEPS = 50_000
_MISSING: Any = object()


class TooManyComparisons(Exception):
    """The comparison used up its steps."""


@dataclass
class JsonComparison:
    """One value against one gold."""

    fields: tuple[str, ...] = ()
    extra: Literal["refuse", "allow"] = "refuse"
    order: Literal["kept", "free"] = "kept"
    rel_tol: float = 0.0
    casefold: bool = False
    steps: int = field(default=0, init=False)

    def equal(self, value: object, gold: object, is_top: bool = False) -> bool:
        """Whether a value equals the gold under the options.

        Raises:
            TooManyComparisons: after `MOST_STEPS` of them.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManyComparisons
        if isinstance(gold, dict):
            if not isinstance(value, dict):
                return False
            wanted = self.fields if is_top and self.fields else list(gold)
            is_exact = self.extra == "allow" or (is_top and bool(self.fields)) or set(value) <= set(gold)
            return is_exact and all(name in value and self.equal(value[name], gold[name]) for name in wanted)
        if isinstance(gold, list):
            if not isinstance(value, list) or len(value) != len(gold):
                return False
            if self.order == "free":
                # compare sorted JSON texts if that decides; otherwise match greedily, for short lists
                as_text = partial(json.dumps, sort_keys=True)
                if sorted(map(as_text, value)) == sorted(map(as_text, gold)):
                    return True
                if len(gold) > 200:
                    return False
                left = list(gold)
                for item in value:
                    at = next((i for i, one in enumerate(left) if self.equal(item, one)), None)
                    if at is None:
                        return False
                    del left[at]
                return True
            return all(self.equal(a, b) for a, b in zip(value, gold, strict=True))
        if isinstance(gold, bool) or isinstance(value, bool) or gold is None or value is None:
            return value is gold
        if isinstance(gold, int | float) and isinstance(value, int | float):
            try:
                allowed = self.rel_tol * abs(gold)
                is_near = self.rel_tol > 0 and math.isfinite(value) and abs(value - gold) <= allowed
            except OverflowError:  # an integer beyond all floats
                is_near = False
            return value == gold or is_near
        if isinstance(gold, str) and isinstance(value, str) and self.casefold:
            return " ".join(value.split()).casefold() == " ".join(gold.split()).casefold()
        return type(value) is type(gold) and bool(value == gold)

    def share(self, value: object, gold: object) -> float:
        """Share of the gold's leaves that the value has in the same place; superfluous fields count as missed
        leaves."""
        same, total = self._leaves(value, gold)
        return same / total if total else 0.0

    def _leaves(self, value: object, gold: object) -> tuple[int, int]:
        if isinstance(gold, dict) and gold:
            held = value if isinstance(value, dict) else {}
            pairs = [self._leaves(held.get(name, _MISSING), one) for name, one in gold.items()]
            extra = len(set(held) - set(gold)) if self.extra == "refuse" else 0
            return sum(s for s, _ in pairs), sum(t for _, t in pairs) + extra
        if isinstance(gold, list) and gold:
            items = value if isinstance(value, list) else []
            padded = [*items, *[_MISSING] * max(0, len(gold) - len(items))]
            pairs = [self._leaves(a, b) for a, b in zip(padded, gold, strict=False)]
            return sum(s for s, _ in pairs), sum(t for _, t in pairs) + max(0, len(items) - len(gold))
        return int(value is not _MISSING and self.equal(value, gold)), 1


@dataclass(frozen=True)
class JsonOptions:
    """Options of `json`."""

    extract: Literal["fence_or_last", "fence", "whole"] = "fence_or_last"
    """The last fenced block, else the last bracketed value; only a fence; or the whole text after the thinking."""
    json_schema: dict[str, Any] | None = None
    """JSON Schema that the value must satisfy; a row's own goes in column `schema`."""
    assert_format: bool = True
    """Check `format` (`date`, `email`, `uri`, …) in schemas, as the RFCs that the drafts cite define it; `false` ignores it."""
    compare: bool = True
    """Compare with the gold in column `answer`; `false` checks the schema only."""
    fields: list[str] = field(default_factory=list)
    """Compare only these top-level fields; left out, all of the gold's."""
    extra: Literal["refuse", "allow"] = "refuse"
    """Whether objects may have fields that the gold does not have."""
    order: Literal["kept", "free"] = "kept"
    """Whether the order of lists counts."""
    rel_tol: float = 0.0
    """Largest error of a number as a share of the gold's."""
    casefold: bool = False
    """Compare texts without regard to case and white space around."""
    partial: bool = False
    """Give the share of the gold's leaves that are equal as the score of a wrong value."""
    timeout_s: float = 1.0
    """CPU seconds a schema may take on one completion."""


class JsonGold(NamedTuple):
    """The gold value, if there is one, and the row's schema, if it has its own."""

    value: Any
    has_value: bool
    schema: dict[str, Any] | None


class JsonVerifier(AnswerVerifier):
    """Right where a value is found, satisfies the schema, and equals the gold."""

    Options: ClassVar[type] = JsonOptions
    options: JsonOptions
    reason_is_public = True  # what a schema asks for, said of the model's own value

    def __init__(self, options: JsonOptions) -> None:
        super().__init__(options)
        self.columns = ("answer",) if options.compare else ()
        if options.rel_tol < 0 or not math.isfinite(options.rel_tol):
            raise BadOption("rel_tol", "`rel_tol` must be a number from 0")
        if options.timeout_s <= 0:
            raise BadOption("timeout_s", "`timeout_s` must be above 0")
        self._pool: Pool | None = None
        schema = options.json_schema
        if schema is not None and (problem := schema_problem(schema, options.assert_format)):
            raise BadOption("json_schema", problem)

    def close(self) -> None:
        """End the worker that checks schemas."""
        if self._pool is not None:
            self._pool.close()

    def compile(self, row: Mapping[str, Any]) -> JsonGold:
        """The gold as a value (a text gold is parsed as JSON) and the row's schema.

        Raises:
            BadGold: there is nothing to check, the answer is no JSON or lacks a field that is compared, or the schema is wrong.
        """
        schema = row.get("schema")
        if schema is not None:
            schema = _parsed(schema, "schema")
            if problem := schema_problem(schema, self.options.assert_format):
                raise BadGold(problem)
        if not self.options.compare:
            if schema is None and self.options.json_schema is None:
                raise BadGold("nothing to check: no schema in the options and no column `schema`")
            return JsonGold(None, False, schema)
        if "answer" not in row:
            raise BadGold("no column `answer`")
        value = _parsed(row["answer"], "answer")
        missing = [name for name in self.options.fields if not isinstance(value, dict) or name not in value]
        if missing:
            raise BadGold(f"the answer has no field `{missing[0]}`")
        return JsonGold(value, True, schema)

    def judge_one(self, sample: Sample) -> Verdict:
        """Extract, check the schema, compare."""
        text, reason = find_json(sample.turn, self.options.extract)
        if text is None:
            return wrong(None, reason) if reason == "hedge" else no_answer(reason)
        try:
            value = parse(text)
        except ValueError as err:
            return wrong(text[:200], str(err) if isinstance(err, BadJson) else "no_json")
        gold: JsonGold = sample.gold
        shown, options = text[:200], self.options
        for schema in (options.json_schema, gold.schema):
            if schema is None:
                continue
            if self._pool is None:
                limits = ProcessLimits(cpu_s=options.timeout_s, memory_mb=512)
                task = "grpo_verifiers.kinds.json_reading:serve"
                self._pool = Pool(task, options.assert_format, workers=1, limits=limits)
            try:
                (result,) = self._pool.run([(schema, text)])
            except LoadFailed as err:
                raise Unavailable(str(err), hint="pip install jsonschema") from err
            if isinstance(result, Done):
                if result.value is not None:
                    return wrong(shown, "schema", detail=result.value)
                continue
            reason = getattr(result, "reason", "raised")
            if reason in ("timeout", "memory"):
                return over_limit(reason, shown, result.seconds)
            return error("schema_" + reason, getattr(result, "message", "")[:200])
        if not gold.has_value:
            return right(shown, "schema")
        settings = (tuple(options.fields), options.extra, options.order, options.rel_tol, options.casefold)
        try:
            if JsonComparison(*settings).equal(value, gold.value, is_top=True):
                return right(shown, "equal")
            score = JsonComparison(*settings).share(value, gold.value) if options.partial else 0.0
        except TooManyComparisons:
            return over_limit("too_many_comparisons", shown)
        return wrong(shown, "unequal", score=min(score, 0.999))

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The gold in a fence."""
        if not self.options.compare:
            return None
        return f"```json\n{json.dumps(_parsed(row['answer'], 'answer'))}\n```"

    @classmethod
    def examples(cls) -> list[Example]:
        row = {"answer": {"name": "Ada", "born": 1815}}
        return [
            Example('```json\n{"born": 1815, "name": "Ada"}\n```', row, "the order of fields does not count"),
            Example('It is {"name": "Ada", "born": "1815"}', row, "a text is not a number"),
            Example('{"name": "Ada", "born": 1816}', row, "half of the leaves are equal", {"partial": True}),
        ]


def _parsed(value: object, column: str) -> Any:
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as err:
            if column == "schema" or value.strip()[:1] in ("{", "["):
                raise BadGold(f"`{column}` is no JSON: {err}") from None
            return value
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError) as err:
        raise BadGold(f"`{column}` is nothing that JSON can say: {err}") from None
    return value
