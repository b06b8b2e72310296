"""Names of verifiers and how to build one. Modules are imported when a kind is first built.

A package of yours adds a kind with an entry point in the group `grpo.verifiers`, a program with `register`:

    [project.entry-points."grpo.verifiers"]
    chess = "my_package.chess:ChessVerifier"
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, MutableMapping
from importlib import import_module

from grpo_verifiers.names import did_you_mean
from grpo_verifiers.verifier import BadOption, Verifier

GROUP = "grpo.verifiers"


class Kinds(MutableMapping[str, str]):
    """Kind → `module:class`. Entry points are read only when a name is unknown or all are listed, because that is slow.

    A name that is already known keeps its class: a package cannot replace it.
    """

    def __init__(self, own: dict[str, str]) -> None:
        self.places = dict(own)
        self._is_complete = False

    def __getitem__(self, kind: str) -> str:
        if kind not in self.places:
            self._complete()
        return self.places[kind]

    def __setitem__(self, kind: str, place: str) -> None:
        self.places[kind] = place

    def __delitem__(self, kind: str) -> None:
        del self.places[kind]

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return iter(list(self.places))

    def __len__(self) -> int:
        self._complete()
        return len(self.places)

    def _complete(self) -> None:
        if self._is_complete:
            return
        from importlib.metadata import entry_points  # this import takes longer than the whole package

        for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
            known = self.places.setdefault(point.name, point.value)
            if known != point.value:
                warnings.warn(
                    f"verifier `{point.name}` is `{known}`; `{point.value}` of the same name is left out", stacklevel=3
                )
        self._is_complete = True


KINDS = Kinds(
    {
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
        "exact": "grpo_verifiers.kinds.short_text:ExactVerifier",
        "set": "grpo_verifiers.kinds.short_text:SetVerifier",
        "format": "grpo_verifiers.kinds.format_tags:FormatVerifier",
        "equation": "grpo_verifiers.kinds.equation:EquationVerifier",
        "instructions": "grpo_verifiers.kinds.instructions:InstructionsVerifier",
        "judge": "grpo_verifiers.kinds.judge:JudgeVerifier",
        "agrees": "grpo_verifiers.kinds.agrees:AgreesVerifier",
        "environment": "grpo_verifiers.kinds.environment:EnvironmentVerifier",
        "reasoning_gym": "grpo_verifiers.kinds.reasoning_gym:GymVerifier",
    }
)


def register(kind: str, place: str) -> None:
    """Add a kind that no entry point names; `place` is `module:class` and is imported when the kind is first built.

    Raises:
        ValueError: the name has another class already, or `place` is no `module:class`.
    """
    if not all(place.partition(":")):
        raise ValueError(f"`{place}` is no `module:class`")
    known = KINDS.places.setdefault(kind, place)  # without reading entry points
    if known != place:
        raise ValueError(f"verifier `{kind}` is `{known}` already, not `{place}`")


def kind_class(kind: str) -> type[Verifier]:
    """The class of a kind.

    Raises:
        BadOption: no such kind, with the nearest name; or one whose class cannot be imported or is no verifier.
    """
    try:
        place = KINDS[kind]
    except KeyError:
        did = did_you_mean(kind, KINDS)
        raise BadOption("kind", f"unknown verifier `{kind}`{did} known: {', '.join(sorted(KINDS))}") from None
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as err:
        why = " ".join(f"{type(err).__name__}: {err}".split())[:300]
        raise BadOption("kind", f"verifier `{kind}` cannot be loaded from `{place}`: {why}") from err
    if not (isinstance(found, type) and issubclass(found, Verifier)):
        raise BadOption("kind", f"verifier `{kind}`: `{place}` is no subclass of `grpo_verifiers.Verifier`")
    if not dataclasses.is_dataclass(getattr(found, "Options", None)):
        raise BadOption("kind", f"verifier `{kind}`: `{place}` has no dataclass `Options`")
    return found


def build(kind: str, **options: object) -> Verifier:
    """A verifier of this kind with these options.

    Raises:
        BadOption: unknown kind or option, or an invalid value.
    """
    cls = kind_class(kind)
    names = [f.name for f in dataclasses.fields(cls.Options)]
    for option in options:
        if option not in names:
            did = did_you_mean(option, names)
            raise BadOption(option, f"unknown option `{option}` of verifier `{kind}`{did}")
    verifier = cls(cls.Options(**options))
    verifier.kind = kind
    return verifier
