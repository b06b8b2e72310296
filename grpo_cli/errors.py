"""The user's mistakes as data: every error a person can cause carries place, message, hint and exit code.

    UserError
    ├── UsageError     2   command line
    ├── RecipeError    2   recipe or --set; may hold many mistakes
    ├── DataError      3   rows, golds, sample files
    ├── SetupError     4   this machine cannot do it: no sandbox, no memory, no permission, no model
    └── TrainingError  5   non-finite numbers, hang, verifiers that give no verdict

A bug is none of these: it flies with its traceback.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from grpo_cli.text import visible

_KINDS = r"(?:token(?![si])|key(?!s)|secret|password|passwd|webhook)"
"""What the name of a secret holds."""
_SECRET = re.compile(rf"""(?i)({_KINDS}[\w-]*["']?\s*[:=]\s*)(?!\s|env:\w+\s*$)([^\n]+)""")
"""The value of a key that names a secret, to the end of its line."""
_CREDENTIALS = (
    re.compile(r"(://)([^/\s@]+)(?=@)"),  # a user and a password before a host
    re.compile(r"((?:^|[\s\"'`=])[\w.+-]+:)(?!\d+@)([^\s@/:\"'`]+)(?=@[\w.-])"),
    re.compile(rf"""(?i)([?&;:,"'`][\w.-]*(?:{_KINDS}[\w-]*|sig|signature|auth)=)([^&;#\s"'`]+)"""),
    re.compile(r"(\b[A-Z0-9_]*(?:TOKEN|SECRET|KEY|PASSWORD)[A-Z0-9_]*=)([^\s\"'`]+)"),
    re.compile(r"(://(?:hooks\.|[\w.-]+/(?:api/)?webhooks/|api\.telegram\.org/bot)[^\s/]*/?)([^\s\"'`]+)"),
    re.compile(r"((?<![A-Za-z0-9])(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|AKIA))([\w-]{12,})"),
    re.compile(r"(?i)(\bbearer\s+)([\w.~+/-]{12,}=*)"),
)
"""What is a secret wherever it stands: parts of an address, a variable's value, and tokens by how they begin."""
_QUOTED = re.compile(r"""(?<!\w)(['"])(?:(?!\1)[^\\]|\\.)*\1(?!\w)""", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w:])-?\d+(?:[.,]\d+)*")
"""Not the line of `file.py:12`."""


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    BAR_MISSED = 1
    USAGE = 2
    DATA = 3
    SETUP = 4
    TRAINING = 5
    INTERRUPTED = 130
    TERMINATED = 143


def masked(text: str) -> str:
    """A `KEY=VALUE` or a line of a recipe with stars in place of what is secret; no letter moves, so carets stay right."""
    return without_credentials(_SECRET.sub(_starred, text))


def without_credentials(text: str) -> str:
    """Any text with stars in place of what is a secret by its form, whatever stands around it."""
    for pattern in _CREDENTIALS:
        text = pattern.sub(_starred, text)
    return text


def names_secret(path: Iterable[object]) -> bool:
    """Whether a key names a secret."""
    return any(_SECRET.search(f"{part}: value") for part in path)


def _starred(found: re.Match[str]) -> str:
    return found[1] + "*" * len(found[2])


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake with its place: `place` is `file:line:col`, a `--set …` or a file name; `source` the lines to show.

    `kind` is what mistakes of one cause share, which are said once; one without a kind is said by itself.
    """

    place: str
    message: str
    source: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        """No secret is shown: neither the value of a key that names one, nor what is one by its form."""
        object.__setattr__(self, "place", masked(self.place))
        object.__setattr__(self, "source", masked(self.source))
        object.__setattr__(self, "message", without_credentials(self.message))


def kind_of(message: str, own: Iterable[Any]) -> str:
    """What messages of one cause share: the text without the parts that come from its row.

    That is quoted values, the row's `own` texts, and numbers, but not those of lines.
    """
    for text in own:
        if isinstance(text, str) and text and text in message:
            message = re.sub(rf"(?<![\w:]){re.escape(text)}(?!\w)", "…", message)
    return _NUMBER.sub("…", _QUOTED.sub("…", message))


def alike(mistakes: Sequence[Mistake]) -> list[list[Mistake]]:
    """Mistakes of one kind together, in the order in which each kind was met."""
    groups: dict[str | int, list[Mistake]] = {}
    for index, one in enumerate(mistakes):
        groups.setdefault(one.kind or index, []).append(one)
    return list(groups.values())


def said_once(mistakes: Sequence[Mistake]) -> str:
    """The first of mistakes of one kind, with how many others there are and the places of the next of them."""
    first, *others = mistakes
    said = f"{first.place}: {first.message}" if first.place else first.message
    if not others:
        return said
    more = ", ".join(one.place for one in others[:2]) + (", …" if len(others) > 2 else "")
    return f"{said}; so {'is' if len(others) == 1 else 'are'} {len(others):,} more: {more}"


def why_unwritten(err: Exception) -> str:
    """Why a file could not be written, in the words of every command; torch and safetensors report a full disk as errors of
    their own."""
    number, text = getattr(err, "errno", None), str(err)
    if number == errno.ENOSPC or "No space left" in text or "os error 28" in text or "StorageFull" in text:
        return "the disk is full"
    if number == errno.EDQUOT or "quota exceeded" in text.lower():
        return "the disk quota is used up"
    if number == errno.EROFS or "Read-only file system" in text:
        return "the file system is read-only"
    return (getattr(err, "strerror", None) or text.strip().partition("\n")[0] or type(err).__name__).lower()


class UserError(Exception):
    """Something the user can fix. Printed as `error: place: message`, then `hint: …`, without a traceback."""

    code: Exit = Exit.USAGE

    def __init__(self, message: str | list[Mistake], *, place: str = "", hint: str = "") -> None:
        if isinstance(message, str):
            message = [Mistake(place, message)]
        self.mistakes = message
        self.hint = without_credentials(hint)
        super().__init__("; ".join(m.message for m in message))

    def render(self, most: int = 10) -> str:
        """The text for stderr, no colour, no control characters, no trailing newline; at most `most` mistakes are shown in
        full."""
        lines = []
        kinds = alike(self.mistakes)
        for same in kinds[:most]:
            lines.append(f"error: {said_once(same)}")
            if same[0].source:
                lines.append(same[0].source)
        left = sum(map(len, kinds[most:]))
        if left > 0:
            lines.append(f"… and {left} more")
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        if len(self.mistakes) > 1:
            lines.append(f"{len(self.mistakes)} errors, nothing was started")
        # messages quote recipes, rows and what programs of others raised
        return "\n".join(visible(line) for line in "\n".join(lines).split("\n"))


class UsageError(UserError):
    """A command line that cannot be meant."""


class RecipeError(UserError):
    """One or many mistakes in a recipe, an overlay or a `--set`."""


class DataError(UserError):
    """Rows, golds or sample files that cannot be used."""

    code = Exit.DATA


class SetupError(UserError):
    """This machine cannot do what was asked."""

    code = Exit.SETUP


class TrainingError(UserError):
    """Training cannot go on; what was good is saved."""

    code = Exit.TRAINING


def out_of_memory(err: BaseException) -> SetupError | None:
    """The error for a user where torch could not allocate memory, on a card or in RAM; None for any other error.

    Asked by name: a command that fails before torch is loaded does not load it for this.
    """
    text = str(err)
    on_card = type(err).__name__ == "OutOfMemoryError" and type(err).__module__.startswith("torch")
    if not on_card and not isinstance(err, MemoryError) and "can't allocate memory" not in text:
        return None
    found = ["out of memory on the GPU" if on_card else "out of memory"]
    if asked := re.search(r"Tried to allocate ([\d.]+ \w+)", text):
        found.append(f"{asked[1]} more were asked for")
    if free := re.search(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", text):
        found.append(f"{free[2]} of {free[1]} are free")
    if others := re.findall(r"Process \d+ has ([\d.]+) GiB", text):
        found.append(f"{len(others)} other processes hold {sum(map(float, others)):.1f} GiB")
    hint = "lower `sample.micro_batch`, `sample.max_tokens` or `sample.prompts`; `grpo check --gpu CARD` computes what a step needs"
    return SetupError("; ".join(found), hint=f"{hint}; a run goes on from its last checkpoint with `--resume`")
