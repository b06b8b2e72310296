"""The result of a check, as data. Every check has a result; one that could not be made is `unknown`, never `ok`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from grpo_cli.errors import Exit, UserError, alike, said_once


class Level(StrEnum):
    """The severity: `warn` makes the command exit with 1, `fail` with the code of the cause."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of one check: a sentence, lines of evidence, the same as data, and a hint."""

    check: str
    level: Level
    message: str
    lines: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    hint: str = ""
    code: Exit = Exit.DATA

    def as_json(self) -> dict[str, Any]:
        """The object in `--json`."""
        out: dict[str, Any] = {"check": self.check, "level": self.level.value, "message": self.message}
        out |= {"lines": list(self.lines)} if self.lines else {}
        out |= {"hint": self.hint} if self.hint else {}
        return out | ({"data": self.data} if self.data else {})


def failed(check: str, err: UserError, most: int = 10) -> CheckFinding:
    """A user's mistake as a finding."""
    kinds, count = alike(err.mistakes), len(err.mistakes)
    if count == 1:
        return CheckFinding(check, Level.FAIL, said_once(err.mistakes), hint=err.hint, code=err.code)
    left = sum(map(len, kinds[most:]))
    shown = [said_once(same) for same in kinds[:most]] + ([f"… and {left:,} more"] if left else [])
    return CheckFinding(
        check,
        Level.FAIL,
        f"{count:,} mistakes",
        lines=tuple(shown),
        data={"mistakes": count},
        hint=err.hint,
        code=err.code,
    )


def exit_code(findings: Sequence[CheckFinding]) -> Exit:
    """The highest code of what failed, 1 where only warnings stand, else 0."""
    codes = [finding.code for finding in findings if finding.level is Level.FAIL]
    if codes:
        return max(codes)
    return Exit.BAR_MISSED if any(f.level is Level.WARN for f in findings) else Exit.OK
