"""Formats numbers and untrusted text for people. Model text reaches a terminal only through `visible`.

How this works, in the order of the file: `visible` turns any text into one harmless line, and `visible_streams` puts
all that a command prints through it. `spell_plainly` swaps our glyphs for ASCII where a stream cannot write them. The
functions behind that turn one value each into a short string, a dash where it was not measured; `strict_json` writes it
as null.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value as JSON and YAML can hold it."""

DASH = "—"
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.:-=+*#"
_GLYPHS = str.maketrans(
    {"✔": "+", "✘": "x", "✓": "+", "…": "~", "·": "|", "±": "~", "—": "-", "─": "-", "━": "=", "╸": ">", "│": "|", "●": "o", "┬": "+", "→": ">",
     "▓": "#", "▒": "=", "░": "."} | dict(zip(BLOCKS, ASCII_BLOCKS, strict=True))
)  # fmt: skip
_BIDI = frozenset(range(0x202A, 0x202F)) | frozenset(range(0x2066, 0x206A)) | {0x061C, 0x200E, 0x200F}


def visible(text: str, most: int | None = None) -> str:
    """Text on one line that cannot move a cursor, set a title or turn direction: controls become signs (ESC is ␛)."""
    if most is not None and len(text) > most:
        text = text[:most]
    if text.isascii() and text.isprintable():
        return text
    out = []
    for char in text:
        code = ord(char)
        if code < 0x20:
            out.append(" " if char in "\n\t\r" else chr(0x2400 + code))
        elif code == 0x7F:
            out.append("␡")
        elif 0x80 <= code < 0xA0 or code in _BIDI or unicodedata.category(char) in ("Cf", "Cs", "Cn", "Co", "Zl", "Zp"):
            out.append("�")
        elif unicodedata.combining(char):
            out.append(char if out and not (len(out) > 2 and all(map(unicodedata.combining, out[-2:]))) else "")
        else:
            out.append(char)
    return "".join(out)


def visible_lines(text: str) -> str:
    """The same for a text of several lines, such as an error."""
    return "\n".join(map(visible, text.split("\n")))


def path_of(name: str) -> Path:
    """The path that a person means: `~` and `~user` are home folders. Of a user who is not here it stays as it is written,
    where `Path.expanduser` would raise."""
    return Path(os.path.expanduser(name))


def real_path(path: Path) -> Path:
    """Where a path leads, links followed; links that lead back to themselves stay, where `Path.resolve` raises."""
    return Path(os.path.realpath(path))


def without_home(text: str) -> str:
    """A text in which paths of this user's home begin with `~`, as `path_of` reads them anywhere."""
    home = os.path.expanduser("~").rstrip("/")
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}(?![\w.-])", "~", text) if home.startswith("/") else text


class VisibleStream:
    """A stream of which a person reads every line: what is written there goes through `visible_lines`. All else is the
    stream's own. A carriage return that begins a write stays, for the bars of libraries."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """As the stream's; the length is that of what was given."""
        begin = "\r" if text.startswith("\r") else ""
        self.stream.write(begin + visible_lines(text.removeprefix("\r")))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Each through `write`."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def visible_streams() -> Iterator[None]:
    """Inside, nothing that this process prints can move a cursor, set a title or turn direction; painters take `raw`."""
    before = sys.stdout, sys.stderr
    # the stream's own class is no base: its attributes would hide those of the stream that it wraps
    sys.stdout, sys.stderr = (cast(TextIO, VisibleStream(raw(one))) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def raw(stream: TextIO) -> TextIO:
    """A stream for control sequences of ours; whoever writes there makes all other text visible."""
    return stream.stream if isinstance(stream, VisibleStream) else stream


def as_ascii(text: str) -> str:
    """The same with our glyphs swapped for plain ones and everything else outside ASCII as `?`, one for one."""
    return text.translate(_GLYPHS).encode("ascii", "replace").decode("ascii")


def needs_ascii(stream: TextIO) -> bool:
    """Whether the stream cannot spell our glyphs, or the locale says that its terminal cannot."""
    if _is_plain_locale(os.environ):
        return True
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    return encoding not in ("utf8", "utf16", "utf32", "utf8sig", "cp65001")


def _is_plain_locale(environ: Mapping[str, str]) -> bool:
    """Whether a person chose the locale C. Python makes it `C.UTF-8` for itself (PEP 538), which leaves LANG as it was."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        chosen = environ.get(name)
        if chosen and not (name == "LC_CTYPE" and chosen == "C.UTF-8"):
            return chosen in ("C", "POSIX")
    return False


def spell_plainly(stream: TextIO) -> None:
    """Have a stream spell our glyphs as plain signs where its encoding lacks them, or where it is a terminal of the locale C.

    Without this the first `±` ends the program with an UnicodeEncodeError. What goes into a file or a pipe that can hold it
    stays as it is; what no encoding holds, half a surrogate pair, becomes an escape.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return
    is_terminal = needs_ascii(stream) and _is_plain_locale(os.environ) and stream.isatty()
    # some systems call a pipe seekable, and Python asks such a stream where it stands: Illegal seek
    with suppress(OSError):
        if needs_ascii(stream):
            stream.reconfigure(encoding="ascii" if is_terminal else None, errors=PLAIN)
        else:
            stream.reconfigure(errors="backslashreplace")


def _plain_signs(err: UnicodeError) -> tuple[str, int]:
    assert isinstance(err, UnicodeEncodeError)
    return as_ascii(err.object[err.start : err.end]), err.end


PLAIN = "grpo-plain"
codecs.register_error(PLAIN, _plain_signs)


def number(value: float | None) -> str:
    """Three significant digits without jumping: 0.612, 71.3, 212, 1.4k, 9.1e-07; — for None."""
    if value is None:
        return DASH
    if isinstance(value, int) and abs(value) < 1000:
        return str(int(value))
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.001:
        return f"{value:.1e}"
    if size < 0.01:
        return f"{value:.4f}"
    if size < 10:
        return f"{value:.3f}" if size < 1 else f"{value:.2f}"
    if size < 100:
        return f"{value:.1f}"
    if size < 1000:
        return f"{value:.0f}"
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if size < 999.5 * scale:
            scaled = value / scale
            return f"{scaled:.1f}{unit}" if abs(scaled) < 99.95 else f"{scaled:.0f}{unit}"
    return f"{value:.1e}"


def score(value: float | None) -> str:
    """Three decimals in a fixed column; — for None."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:.3f}"


def two_decimals(value: float | None) -> str:
    """Two decimals; — for None."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:.2f}"


def whole(value: float | None) -> str:
    """No decimals; — for None."""
    return number(value) if value is None or not math.isfinite(value) else f"{value:.0f}"


def strict_json(value: object, *, ensure_ascii: bool = True, indent: int | None = None) -> str:
    """What `--json` prints: a number that is not finite says that something was not measured, and is null."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=ensure_ascii, indent=indent)
    except (TypeError, ValueError):  # rarely needed: searching the whole value first would take longer than writing it
        return json.dumps(_finite(value), allow_nan=False, ensure_ascii=ensure_ascii, indent=indent)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def plus_minus(value: float | None) -> str:
    """A half-width as `±.061`, nothing where it was not measured."""
    if value is None or not math.isfinite(value):
        return ""
    return f"±{value:.3f}".replace("±0.", "±.")


def percent(value: float | None) -> str:
    """A share as 1.6% or 56%; — for None."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{100 * value:.1f}%" if 0 < value < 0.0995 else f"{100 * value:.0f}%"


def duration(seconds: float | None, gap: str = " ") -> str:
    """3h 01m, 12m 05s, 34s, 2.9s; — for None."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{gap}{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{gap}{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{gap}{whole % 86400 // 3600:02d}h"


def bar(done: float, width: int) -> tuple[str, str]:
    """A progress bar as its full and its empty part."""
    share = min(max(done, 0.0), 1.0)
    halves = int(share * width * 2)
    full = "━" * (halves // 2) + ("╸" if halves % 2 and halves // 2 < width else "")
    return full, "─" * (width - len(full))


def reasons(metrics: Mapping[str, Any], verifier: str, most: int = 3) -> str:
    """The commonest reasons of a verifier with their shares of its calls: `equal:string 87%  unequal 12%`."""
    start = f"verify/{verifier}/reason/"
    shares = {key[len(start) :]: value for key, value in metrics.items() if key.startswith(start) and value}
    ranked = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return "  ".join(f"{visible(name, 24)} {percent(share)}" for name, share in ranked)
