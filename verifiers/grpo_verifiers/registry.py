"""Names of verifiers and how to build one. Modules are imported when a kind is first built."""

from __future__ import annotations

import dataclasses
import difflib
from importlib import import_module
from typing import Any

from grpo_verifiers.verifier import BadOption, Verifier

KINDS: dict[str, str] = {
    "math": "grpo_verifiers.kinds.maths_answer:MathVerifier",
    "regex": "grpo_verifiers.kinds.regex_match:RegexVerifier",
    "code": "grpo_verifiers.program:CodeVerifier",
    "python": "grpo_verifiers.kinds.python_function:PythonVerifier",
    "sql": "grpo_verifiers.program.sql:SqlVerifier",
    "command": "grpo_verifiers.program.command:CommandVerifier",
    "metamath": "grpo_verifiers.proof.metamath:MetamathVerifier",
    "coq": "grpo_verifiers.proof.coq:CoqVerifier",
    "json": "grpo_verifiers.kinds.json_value:JsonVerifier",
    "choice": "grpo_verifiers.kinds.choice:ChoiceVerifier",
    "numeric": "grpo_verifiers.kinds.numeric:NumericVerifier",
    "exact": "grpo_verifiers.kinds.exact:ExactVerifier",
    "set": "grpo_verifiers.kinds.set_of:SetVerifier",
    "format": "grpo_verifiers.kinds.format_tags:FormatVerifier",
    "equation": "grpo_verifiers.kinds.equation:EquationVerifier",
    "instructions": "grpo_verifiers.kinds.instructions:InstructionsVerifier",
    "reasoning_gym": "grpo_verifiers.kinds.reasoning_gym:GymVerifier",
    "reward_model": "grpo_cli.reward.reward_model:RewardModelVerifier",  # needs torch, so it lives with the trainer
}


def kind_class(kind: str) -> type[Verifier]:
    """The class of a kind.

    Raises:
        BadOption: no such kind; the message holds the nearest name.
    """
    try:
        module, name = KINDS[kind].split(":")
    except KeyError:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        did = f"; did you mean `{near[0]}`?" if near else ""
        raise BadOption("kind", f"unknown verifier `{kind}`{did} known: {', '.join(sorted(KINDS))}") from None
    found: type[Verifier] = getattr(import_module(module), name)
    return found


def build(kind: str, **options: Any) -> Verifier:
    """A verifier of this kind with these options.

    Raises:
        BadOption: unknown kind or option, or a value that cannot be meant.
    """
    cls = kind_class(kind)
    names = [f.name for f in dataclasses.fields(cls.Options)]
    for option in options:
        if option not in names:
            near = difflib.get_close_matches(option, names, n=1)
            did = f"; did you mean `{near[0]}`?" if near else ""
            raise BadOption(option, f"unknown option `{option}` of verifier `{kind}`{did}")
    return cls(cls.Options(**options))
