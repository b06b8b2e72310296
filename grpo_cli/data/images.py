"""The images of a row: where they come from, what is refused, and what is kept of them.

How this works. A column names a file beside the rows or holds the bytes of one (`Blob`, or the `{bytes, path}` of a parquet
column). `read_images` reads and decodes each once, so that a broken file is a mistake of its row and not of a later step. A
`RowImage` keeps where the bytes are and their hash, never pixels; `RowImage.picture` decodes again where a model looks at it.
In the texts of a prompt an image is the mark `<image>`; `with_blocks` turns marks into the blocks that chat templates read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.data.template import FillError, NullValue
from grpo_cli.errors import DataError, SetupError

if TYPE_CHECKING:
    from PIL.Image import Image

MARK = "<image>"
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MOST_BYTES = 20_000_000
MOST_PIXELS = 16_000_000
MOST_RATIO = 200
"""Longer side over shorter one; processors of the Qwen2-VL family refuse more."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|data:")
_FILE = re.compile(r"(?i)[^\n]+\.(png|jpe?g|webp|gif|bmp|tiff?)")
_COLUMN = re.compile(r"(?i).*(image|img|picture|photo).*|file_name")


class Blob(str):
    """Bytes that are no text; as text it is their hash, so that ids and records hold that."""

    content: bytes

    def __new__(cls, content: bytes) -> Blob:
        made = super().__new__(cls, f"sha256:{hashlib.sha256(content).hexdigest()}")
        made.content = content
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # records travel between ranks, and bytes have no place in them


class BadImage(FillError):
    """An image that cannot be shown to a model."""


@dataclass(frozen=True, slots=True)
class RowImage:
    """One image: its name for people, the hash of its bytes, and its size in pixels. `source` is its file or its bytes."""

    name: str
    sha256: str
    width: int
    height: int
    source: Path | bytes = field(compare=False, repr=False)

    def picture(self) -> Image:
        """The image in RGB, upright.

        Raises:
            DataError: its file has gone or changed.
        """
        try:
            content = _content(self.source, self.name)
            if hashlib.sha256(content).hexdigest() != self.sha256:
                raise BadImage(f"the image `{self.name}` has changed since the rows were read")
            return _decoded(content, self.name)
        except BadImage as err:
            raise DataError(str(err), hint="once it is as it was, `--resume` goes on") from err


def read_images(values: Sequence[object], folder: Path | None) -> tuple[RowImage, ...]:
    """The images that the values of a row's columns name or hold, in order; a list counts as its items.

    Args:
        values: paths, bytes, or objects with `bytes` or `path`.
        folder: that of the rows' file, which paths count from and must lie in; None where rows come from no file.

    Raises:
        NullValue: the row has no image.
        BadImage: one that is refused, with the reason.
    """
    flat = [item for value in values for item in (value if isinstance(value, list) else [value]) if item is not None]
    if not flat:
        raise NullValue("the row has no image, and every row needs one")
    return tuple(_read(value, folder) for value in flat)


def shown_images(files: Sequence[str]) -> tuple[RowImage, ...]:
    """The images of files that a person names, wherever they lie.

    Raises:
        DataError: one that is refused.
    """
    try:
        return tuple(_read(Path(file).name, Path(file).parent) for file in files)
    except BadImage as err:
        raise DataError(str(err), place="--image") from err


def _read(value: object, folder: Path | None) -> RowImage:
    inside = value.get("bytes") if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and isinstance(inside, str) and not isinstance(inside, Blob):
        inside = Blob(inside.encode())  # bytes that happen to be text: no image, and `_decoded` says so
    if isinstance(value, Mapping) and inside is None:
        inside = value.get("path")
    source: Path | bytes
    if isinstance(inside, Blob):
        named = value.get("path") if isinstance(value, Mapping) else None
        name, source = str(named or f"{inside[:15]}…"), inside.content
    elif isinstance(inside, str):
        name, source = inside, _file(inside, folder)
    else:
        raise BadImage(f"an image is a path or the bytes of a file, not {type(inside).__name__}")
    content = _content(source, name)
    picture = _decoded(content, name)
    return RowImage(name, hashlib.sha256(content).hexdigest(), picture.width, picture.height, source)


def _file(name: str, folder: Path | None) -> Path:
    if _URL.match(name):
        raise BadImage(f"the image `{name[:80]}` is an address: download it and name the file")
    if not name.strip():
        raise BadImage("the path of an image is empty")
    if folder is None:
        raise BadImage(f"the image `{name}` is a path, and these rows lie in no folder")
    # by its words, not resolved: a link inside the folder was put there by whoever made the set
    home = Path(os.path.abspath(folder))
    path = Path(os.path.abspath(home / name))
    if not path.is_relative_to(home):
        raise BadImage(f"the image `{name}` lies outside the folder of the rows, `{folder}`")
    return path


def _content(source: Path | bytes, name: str) -> bytes:
    if isinstance(source, bytes):
        content = source
    else:
        try:
            size = source.stat().st_size
            content = source.read_bytes() if size <= MOST_BYTES else b"-" * (MOST_BYTES + 1)
        except FileNotFoundError:
            raise BadImage(f"no image `{name}`") from None
        except (OSError, ValueError) as err:
            raise BadImage(f"the image `{name}` cannot be read: {getattr(err, 'strerror', None) or err}") from err
    if not content:
        raise BadImage(f"the image `{name}` is empty")
    if len(content) > MOST_BYTES:
        raise BadImage(f"the image `{name}` has more than {MOST_BYTES // 1_000_000} MB")
    return content


def require_pillow() -> None:
    """Raises SetupError where the package that decodes images is missing."""
    if find_spec("PIL") is None:
        raise SetupError("images need the package `pillow`", hint="pip install 'grpo-cli[vision]'")


def _decoded(content: bytes, name: str) -> Image:
    require_pillow()
    from PIL import Image, ImageOps, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # the limit is ours, below, and stricter
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                size = f"{width * height / 1e6:,.1f} megapixels ({width:,} x {height:,})"
                raise BadImage(f"the image `{name}` has {size}; at most {MOST_PIXELS // 1_000_000} are read")
            if max(width, height) > MOST_RATIO * min(width, height):
                raise BadImage(
                    f"the image `{name}` is {width:,} x {height:,}: one side is over {MOST_RATIO} x the other"
                )
            # a JPEG of a phone may hold a second picture, for depth: the first one is the photograph
            if image.format not in ("JPEG", "MPO") and (frames := getattr(image, "n_frames", 1)) > 1:
                raise BadImage(f"the image `{name}` is animated or has pages ({frames}); one frame is read")
            if image.mode.startswith(("I", "F")):
                raise BadImage(f"the image `{name}` has more than 8 bits a channel; save it with 8")
            return ImageOps.exif_transpose(image).convert("RGB")
    except UnidentifiedImageError:
        raise BadImage(f"`{name}` is no image of a kind that is read: {', '.join(FORMATS)}") from None
    except FillError:
        raise
    except Exception as err:  # decoders raise what they like for a broken file
        raise BadImage(f"the image `{name}` is broken: {' '.join(str(err).split())[:120]}") from err


def placed(text: str, count: int) -> str:
    """A text with as many marks as it shows images: those that it has, else all of them before it.

    Raises:
        FillError: it has another number of marks.
    """
    marks = text.count(MARK)
    if marks not in (0, count):
        raise FillError(f"the prompt has {marks} `{MARK}`, and the row {count} images")
    return text if marks else MARK * count + text


def with_blocks(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with text and image blocks in place of texts, in all of them: some templates read nothing else."""
    found = []
    for message in messages:
        parts: list[dict[str, str]] = []
        for i, text in enumerate(str(message["content"]).split(MARK)):
            parts += [{"type": "image"}] if i else []
            parts += [{"type": "text", "text": text}] if text else []
        found.append({**message, "content": parts})
    return found


def image_column(fields: Mapping[str, Any]) -> str | None:
    """The first column of a row that holds images, by its bytes, or by a name and a path that say so."""
    for name, value in fields.items():
        items = value if isinstance(value, list) else [value]
        if any(
            isinstance(one, Blob) or (isinstance(one, Mapping) and isinstance(one.get("bytes"), Blob)) for one in items
        ):
            return name
        paths = [one.get("path") if isinstance(one, Mapping) else one for one in items]
        if _COLUMN.fullmatch(name) and paths and all(isinstance(one, str) and _FILE.fullmatch(one) for one in paths):
            return name
    return None
