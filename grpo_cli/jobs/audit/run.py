"""Verifiers to audit, with their rows: kinds on built-in rows, or a recipe's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_cli.errors import UsageError
from grpo_cli.jobs.audit.samples import OPTIONS, ROWS, WHOLE_TEXT
from grpo_cli.jobs.audit.verifier import VerifierAudit, audit
from grpo_cli.recipe.kinds import KINDS
from grpo_cli.reward.plan import ScoringEntry, ScoringPlan, from_recipe
from grpo_verifiers.kinds.format_tags import FormatVerifier
from grpo_verifiers.kinds.instructions import InstructionsVerifier
from grpo_verifiers.kinds.regex_match import RegexVerifier
from grpo_verifiers.verifier import Verifier


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
    from grpo_cli.recipe.reading.load import folder_of, load

    recipe = load(source, sets)
    base = folder_of(source)
    rows = load_rows(recipe.data, "eval" if recipe.data.eval is not None else "train", base)[:most]
    plan = from_recipe(source, sets)
    filled = [{**row.fields, "prompt": row.prompt, **_good(gold, row.fields)} for row in rows]
    return _audited(plan, dict.fromkeys(plan.entries, filled))


def _instead(name: str) -> str:
    """What to type for a name that has no built-in rows."""
    from grpo_cli.recipe.reading.load import shipped_recipes

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
        return [
            audit(
                name,
                verifier,
                rows[name],
                whole_text=plan.entries[name].kind in WHOLE_TEXT,
                form=_is_form(verifier),
            )
            for name, verifier in verifiers.items()
        ]
    finally:
        for verifier in verifiers.values():
            verifier.close()


def _is_form(verifier: Verifier) -> bool:
    """Whether a verifier judges how a text looks rather than an answer."""
    return isinstance(verifier, FormatVerifier | InstructionsVerifier) or (
        isinstance(verifier, RegexVerifier) and not verifier.columns
    )
