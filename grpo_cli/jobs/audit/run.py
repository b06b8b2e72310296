"""Verifiers to audit, with their rows: kinds on built-in rows, or a recipe's own.

`audit_kinds` takes the examples of each kind; `audit_recipe` loads the recipe's rows and makes a right answer of each, from the
gold or from `--gold TEMPLATE`. Both start the verifiers and hand each to `verifier.audit`, which attacks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_cli.errors import UsageError
from grpo_cli.jobs.audit.verifier import VerifierAudit, audit
from grpo_cli.recipe.sections.rewards import KINDS
from grpo_cli.reward.plan import ScoringEntry, ScoringPlan, from_recipe
from grpo_verifiers.kinds.format_tags import FormatVerifier
from grpo_verifiers.kinds.instructions import InstructionsVerifier
from grpo_verifiers.kinds.regex_match import RegexVerifier

# Rows to audit a kind on when the user gives none: a few plain golds of the shapes that the kind is used
# for.

Rows = list[dict[str, Any]]

_CITIES = ["Paris", "Rome", "Berlin", "Madrid"]

ROWS: dict[str, Rows] = {
    "math": [
        {"prompt": f"What is {question}?", "answer": answer}
        for question, answer in [
            ("6 times 12", "72"),
            ("a third and a sixth together", "\\frac{1}{2}"),
            ("the square of x + 1", "x^2+2x+1"),
            ("the square root of 20", "2\\sqrt{5}"),
            ("the point above", "(3, \\frac{\\pi}{2})"),
            ("the solution set", "[-2, 7)"),
            ("0.375 in words of digits", "0.375"),
            ("3 minus 10", "-7"),
            ("the price", "1,250"),
            ("the set of divisors of 4", "\\{1, 2, 4\\}"),
        ]
    ],
    "exact": [{"prompt": "Which city?", "answer": city} for city in _CITIES],
    "set": [
        {"prompt": "Name them.", "answer": answer}
        for answer in (["red", "green"], ["1", "5", "9"], ["oak", "elm", "ash"])
    ],
    "choice": [
        {"prompt": "Which city? A. Paris B. Rome C. Berlin D. Madrid", "answer": letter, "choices": _CITIES}
        for letter in "ABCD"
    ],
    "numeric": [{"prompt": "How much?", "answer": answer} for answer in (42, "3.25", "-17", "5 km", "12%", "1e-9")],
    "json": [
        {"prompt": "Give the record.", "answer": answer}
        for answer in ({"name": "Ada", "born": 1815}, {"name": "Alan", "born": 1912}, {"items": [1, 2, 3]})
    ],
    "equation": [
        {"prompt": "Make 24 from 3, 3, 8, 8.", "target": 24, "numbers": [3, 3, 8, 8], "good": "\\boxed{8/(3-8/3)}"},
        {"prompt": "Make 98 from 44, 19, 35.", "target": 98, "numbers": [44, 19, 35], "good": "\\boxed{44+19+35}"},
        {"prompt": "Make 5 from 2, 3.", "target": 5, "numbers": [2, 3], "good": "\\boxed{2+3}"},
    ],
    "format": [{"prompt": "Think first.", "good": "<think>a</think>\n<answer>b</answer>"}],
    "instructions": [
        {
            "prompt": "Be short.",
            "instructions": [{"kind": "words", "most": 4}, {"kind": "no_commas"}],
            "good": "So be it.",
        }
    ],
    "regex": [
        {"prompt": "Answer with a digit.", "answer": str(digit), "good": f"The digit is {digit}"} for digit in range(5)
    ],
    "reasoning_gym": [
        {
            "prompt": f"Calculate {a} + {b}.",
            "rg": "basic_arithmetic",
            "question": "",
            "answer": str(a + b),
            "metadata": {},
        }
        for a, b in ((2, 3), (10, 7), (5, 5))
    ],
}
"""By kind; `good` is a right completion where the verifier cannot write one itself."""

OPTIONS: dict[str, dict[str, Any]] = {
    "regex": {"pattern": r"^The digit is (?P<answer>\d)\s*$", "match": "answer_group"}
}
"""Options an audit without a recipe needs."""

WHOLE_TEXT = frozenset({"regex", "format", "instructions"})
"""Kinds that judge the whole text by the recipe's pattern: an answer's wrapping means nothing to them."""


def audit_kinds(kinds: Sequence[str]) -> list[VerifierAudit]:
    """Audit kinds on built-in rows; `all` is every kind that has some.

    Raises:
        UsageError: an unknown kind, or one that needs the user's rows.
        SetupError: a verifier cannot run here.
    """
    names = list(ROWS) if list(kinds) == ["all"] else list(dict.fromkeys(kinds))
    for name in names:
        if name not in ROWS:
            raise UsageError(f"no built-in rows for `{name}`", hint=_instead(name))
    plan = ScoringPlan({name: ScoringEntry(name, OPTIONS.get(name, {})) for name in names}, "")
    return _audited(plan, {name: ROWS[name] for name in names})


def audit_recipe(source: str, sets: Sequence[str], most: int, gold: str | None = None) -> list[VerifierAudit]:
    """Audit a recipe's verifiers on the first rows of its evaluation data, else of its training data.

    `gold` is a template of a right completion, for verifiers that cannot write one themselves.

    Raises:
        RecipeError, DataError: the recipe or its rows cannot be used.
        SetupError: a verifier cannot run here.
    """
    from grpo_cli.data.rows import load_rows
    from grpo_cli.recipe.reading.load import load_with_folder

    recipe, base = load_with_folder(source, sets)
    rows = load_rows(recipe.data, "eval" if recipe.data.eval is not None else "train", base)[:most]
    plan = from_recipe(source, sets)
    filled = [{**row.fields, "prompt": row.prompt, **_good(gold, row.fields)} for row in rows]
    return _audited(plan, dict.fromkeys(plan.entries, filled))


def _instead(name: str) -> str:
    """What to type for a name that has no built-in rows."""
    from grpo_cli.recipe.reading.source import shipped_recipes

    if name in KINDS:
        return "audit it with `--recipe FILE`, on its own rows"
    if name in shipped_recipes() or Path(name).suffix in (".yaml", ".yml"):
        return f"the verifiers of a recipe are audited by `--recipe {name}`"
    return f"known: {', '.join(sorted(ROWS))}, all"


def _good(template: str | None, fields: Mapping[str, Any]) -> dict[str, str]:
    if template is None:
        return {}
    try:
        return {"good": template.format(**fields)}
    except (KeyError, IndexError, ValueError) as err:
        why = f"no column {err}" if isinstance(err, KeyError) else str(err)
        raise UsageError(
            f"`--gold {template}`: {why}", hint=f"columns: {', '.join(fields)}; `{{{{` is a brace"
        ) from err


def _audited(plan: ScoringPlan, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[VerifierAudit]:
    verifiers = plan.start()
    try:
        found = []
        for name, verifier in verifiers.items():
            # these judge how a text looks, not an answer
            is_form = isinstance(verifier, FormatVerifier | InstructionsVerifier) or (
                isinstance(verifier, RegexVerifier) and not verifier.columns
            )
            is_whole = plan.entries[name].kind in WHOLE_TEXT
            found.append(audit(name, verifier, rows[name], whole_text=is_whole, form=is_form))
        return found
    finally:
        for verifier in verifiers.values():
            verifier.close()
