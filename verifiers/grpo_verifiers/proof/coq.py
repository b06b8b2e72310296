"""The verifier `coq`: a proof script is right if Coq's kernel accepts it for the row's statement without foreign axioms.

How this works: the exit status of `coqc` alone is worthless, since it is 0 for `Admitted` and for new axioms. So `Given.v` holds the
statement, written here; `Solution.v` the proof script; and `Check.v` gives the proved term exactly the type of the statement. The
axioms that `Print Assumptions` lists for it must be among those that the option `axioms` allows. All three are compiled in the
sandbox tier `namespaces`.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_verifiers.program.command import source_of
from grpo_verifiers.sandbox.lane import Lane
from grpo_verifiers.sandbox.lanes import Lanes
from grpo_verifiers.sandbox.programs import ProgramLimits, ProgramResult, need_programs, run_program
from grpo_verifiers.sandbox.sandboxed import SandboxedVerifier
from grpo_verifiers.sandbox.tiers import Tier
from grpo_verifiers.verdict import Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, Sample

TAGS = ("coq", "v", "gallina")
MOST_SOURCE = 128 << 10
CLOSED = "Closed under the global context"
THEOREM = "goal"
RESTATED = re.compile(rf"\b(?:Theorem|Lemma|Definition|Fact|Corollary|Proposition|Example)\s+{THEOREM}\b")
ENDED = re.compile(r"\b(?:Qed|Defined|Admitted|Abort|Save)\s*\.\s*$")
AXIOM = re.compile(r"\A([A-Za-z_][\w'.]*)\s*:")


@dataclass(frozen=True)
class CoqOptions:
    """Options of `coq`."""

    timeout: float = 20.0
    """CPU seconds for each of the runs of the compiler."""
    mem_mb: int = 2048
    """Private memory of a run."""
    axioms: list[str] = field(default_factory=list)
    """Axioms that a proof may rest on, as `Print Assumptions` names them."""
    lanes: int = 0
    """Runs at the same time; 0: cores less GPUs."""


@dataclass(frozen=True, slots=True)
class CoqGoal:
    """A compiled row: imports (read by every file), definitions that the statement needs, the statement."""

    imports: str
    preamble: str
    statement: str


class CoqVerifier(SandboxedVerifier):
    """Rows: `statement`; optional `imports`, `preamble` (definitions), `answer` (a proof script)."""

    Options = CoqOptions
    columns = ("statement",)

    def __init__(self, options: CoqOptions) -> None:
        super().__init__(options)
        self._given: dict[CoqGoal, bytes] = {}

    def compile(self, row: Mapping[str, Any]) -> CoqGoal:
        """The goal of a row; a statement's own final dot is taken off.

        Raises:
            BadGold: there is no `statement`, or a column is no text.
        """
        texts = [row.get(name) or "" for name in ("imports", "preamble", "statement")]
        if not all(isinstance(t, str) for t in texts) or not texts[2].strip():
            raise BadGold(
                "`statement` is a proposition such as `forall n : nat, n + 0 = n`; `imports`, `preamble` are text"
            )
        return CoqGoal(texts[0].strip(), texts[1].strip(), texts[2].strip().removesuffix("."))

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The reference proof, where the row has one."""
        proof = row.get("answer")
        return f"```coq\n{proof}\n```" if isinstance(proof, str) and proof.strip() else None

    def find_tier(self) -> Tier:
        """The tier `namespaces`, with Coq's compiler there."""
        return need_programs(["coqc"], "the verifier `coq`")

    def judge_one(self, lanes: Lanes, sample: Sample) -> Verdict:
        """The verdict on one proof script."""
        started = time.perf_counter()
        script = source_of(sample.turn, TAGS)
        if script is None or not script.strip():
            return no_answer("no_proof")
        if len(script) > MOST_SOURCE:
            return over_limit("proof_size")
        return self.in_a_slot(
            lanes,
            lambda slot: self._check(slot.lane("programs", "command"), sample.gold, script.strip(), started),
            started,
        )

    def _check(self, lane: Lane, goal: CoqGoal, script: str, started: float) -> Verdict:
        given = self._given.get(goal)
        if given is None:
            stated = f"{goal.imports}\n{goal.preamble}\nDefinition grpo_statement := ({goal.statement}).\n"
            made = self._coqc(lane, "Given", stated, {})
            if made.report.killed or made.report.exit_code != 0:
                return error("statement", made.stderr[-300:], time.perf_counter() - started)
            given = self._given[goal] = made.products.get("Given.vo", b"")
        solved = self._coqc(lane, "Solution", solution(goal, script), {"Given.vo": given})
        seconds = time.perf_counter() - started
        if solved.report.killed:
            return over_limit("time", script, seconds)
        if solved.report.exit_code != 0:
            return wrong(script, "does_not_check", seconds, 0.0, solved.stderr[-400:])
        final = (
            "Require Given.\nRequire Solution.\n"
            f"Definition grpo_check : Given.grpo_statement := Solution.{THEOREM}.\nPrint Assumptions grpo_check.\n"
        )
        products = {"Given.vo": given, "Solution.vo": solved.products.get("Solution.vo", b"")}
        checked = self._coqc(lane, "Check", final, products)
        seconds = time.perf_counter() - started
        if checked.report.killed:
            return over_limit("time", script, seconds)
        if checked.report.exit_code != 0:
            return wrong(script, "proves_other", seconds, 0.0, checked.stderr[-400:])
        foreign = foreign_assumptions(checked.stdout.decode("utf-8", "replace"), self.options.axioms)
        if foreign:
            return wrong(script, "assumes", seconds, 0.0, ", ".join(foreign)[:300])
        return right(script, "proved", seconds)

    def _coqc(self, lane: Lane, name: str, text: str, products: Mapping[str, bytes]) -> ProgramResult:
        argv = [shutil.which("coqc") or "coqc", "-q", "-Q", ".", "", f"{name}.v"]
        limits = ProgramLimits(self.options.timeout, self.options.mem_mb)
        return run_program(lane, argv, {f"{name}.v": text}, limits, keep=True, products=products)


def solution(goal: CoqGoal, script: str) -> str:
    """The file with the proof; a script that states the theorem itself is used whole, since `Check.v` checks the type."""
    head = f"{goal.imports}\nRequire Import Given.\n"
    if RESTATED.search(script):
        return f"{head}{script}\n"
    ending = "" if ENDED.search(script) else "\nQed."
    return f"{head}Theorem {THEOREM} : {goal.statement}.\n{script}{ending}\n"


def foreign_assumptions(printed: str, allowed: Sequence[str]) -> list[str]:
    """The axioms that `Print Assumptions` lists and the option does not; a line that is not understood counts as one."""
    text = printed.strip()
    if text == CLOSED:
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0].strip() != "Axioms:":
        return [text[:200] or "nothing was printed"]
    found = []
    for line in lines[1:]:
        if line[0].isspace():
            continue  # the rest of a type
        match = AXIOM.match(line)
        if match is None or match[1] not in allowed:
            found.append(match[1] if match else line[:100])
    return found
