"""The base class of verifiers. Golds are compiled once per row; completions are judged in batches.

A verifier is responsible for its isolation: `judge` may be called from any thread, never raises on model text, never
touches the caller's signals, and returns within the verifier's own limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from grpo_verifiers.verdict import Verdict, floored


class BadGold(ValueError):
    """A row whose gold this verifier cannot use; the message gives the reason, without the row number."""


class BadOption(ValueError):
    """An option that does not exist, or with an invalid value. `option` is its name."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class Unavailable(RuntimeError):
    """This verifier cannot run on this machine (no sandbox, missing package). `hint` names the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Played(NamedTuple):
    """The outcome of an episode by its environment: any finite number, or no verdict (None) with the reason.

    With `over_limit` its actions exceeded a limit of the environment or broke it: the number is the sum of rewards
    until then, but at most 0.
    One that `is_lost` was not played to its end: no verifier judges what there is of it.
    """

    outcome: float | None
    reason: str = ""
    problem: str = ""
    over_limit: bool = False
    is_lost: bool = False


class Sample(NamedTuple):
    """One completion with the compiled gold of its row (and the prompt, for verifiers that want it).

    `token_ids` are set only if the completion was sampled in this process, `played` only if it is an episode.
    `assistant_prefix` is the part of the assistant's turn that the prompt contains: a thinking tag opened by the chat
    template, and the prefill.
    """

    completion: str
    gold: Any
    prompt: str = ""
    token_ids: Sequence[int] | None = None
    played: Played | None = None
    assistant_prefix: str = ""

    @property
    def turn(self) -> str:
        """The assistant's whole turn, in which a verifier finds where the thinking ends; a completion that is no text
        stays as it is."""
        return self.assistant_prefix + self.completion if isinstance(self.completion, str) else self.completion


class Verifier(ABC):
    """Base of all verifiers. Subclasses take a frozen `Options` dataclass (all fields with defaults)."""

    Options: ClassVar[type]
    """The dataclass of this kind's options; recipe models mirror it."""

    kind: str = ""
    """The name it was built by; reward functions made from it have the same name."""

    columns: tuple[str, ...] = ("answer",)
    """Row fields that `compile` reads; a row without them is a data error."""

    runs_elsewhere: bool = False
    """Whether a batch is judged in processes of its own, as many as the machine has cores for.

    Such a verifier can judge while this process generates, and copies of it in several processes would only compete for
    cores. False for a verifier that computes in this process, or has a single worker for hard cases.
    """

    is_learned: bool = False
    """Whether the score comes from a learned model, which is a proxy, not a check; every copy holds the model's
    weights."""

    is_noisy: bool = False
    """Whether scoring the same answer again may give another score."""

    reason_is_public: bool = False
    """Whether the detail of its verdicts may be shown to the model (`train.method: distil`): it never has a gold, nor a hidden input or
    output of a test. Otherwise only the reason's code is shown."""

    reads_text: bool = True
    """Whether its verdict is computed from the text; an environment's verdict comes with the sample."""

    most: float | None = None
    """The highest score that it can give; known after `start`, None if unknown."""
    low: float | None = 0.0
    """The score of a completion without an answer or over a limit; None: the lowest score of its group, at most 0."""

    wants_whole_batch: bool = False
    """Whether a verdict may depend on the other completions: then all of a step are judged in one call."""

    printed: int = 0
    """Lines that the user's code has printed so far."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def remarks(self) -> list[str]:
        """Notes from its start or its first rows, for the screen."""
        return []

    @classmethod
    def examples(cls) -> list[Any]:
        """Completions and rows that show what it does (`answers.Example`); `grpo explain KIND` judges them."""
        return []

    def describe(self, golds: Sequence[Any]) -> list[str]:
        """The kinds of rows among these compiled golds, one line each, for `grpo check`."""
        return []

    @abstractmethod
    def compile(self, row: Mapping[str, Any]) -> Any:
        """The gold of one row, checked and parsed once. Must be picklable.

        Raises:
            BadGold: the row cannot be used; the message is shown with the row's number.
        """

    @abstractmethod
    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in the order of `samples`. Never raises on model text."""

    def readings(self, sample: Sample, verdict: Verdict) -> tuple[str, str]:
        """What was read of the gold and of the answer, for people (`grpo verify --explain`)."""
        return repr(sample.gold), verdict.answer or ""

    def forget(self) -> None:  # noqa: B027 - most verifiers remember nothing
        """Forget comparisons made before, so that the next verdict is worked out anew."""

    def start(self) -> None:  # noqa: B027 - most verifiers need nothing
        """Prepare workers or a sandbox now rather than at the first call.

        Raises:
            Unavailable: this machine cannot run it.
        """

    def close(self) -> None:  # noqa: B027 - most verifiers hold nothing
        """Release processes and files; may be called twice."""

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """A completion that must be right for this row, used by the gold audit; None where there is none."""
        return None

    def verify(self, completion: str, row: Mapping[str, Any], prompt: str = "") -> Verdict:
        """One completion against one row: the short form for notebooks and tests.

        Raises:
            TypeError: the second argument is no mapping, such as the bare gold.
            BadGold: the row cannot be used.
        """
        if type(row) is not dict and not isinstance(row, Mapping):
            raise TypeError(
                f"the second argument is the row, such as {{'answer': {row!r}}}, not a {type(row).__name__}"
            )
        return floored(self.judge([Sample(completion, self.compile(row), prompt)]), self.low)[0]
