"""GPUs by name: memory and speed from the makers' data sheets; and detection of the GPU in this machine."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_cli.errors import UsageError
from grpo_verifiers.names import nearest


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU.

    `memory` in GiB as a program gets it; `tflops` of dense products in half precision with float32 sums, 10^12 a second;
    `bandwidth` of its memory in 10^12 bytes a second; `half` is the precision that it multiplies in.
    """

    name: str
    memory: float
    tflops: float
    bandwidth: float
    half: str = "bfloat16"


CARDS = tuple(
    Gpu(*row)
    for row in (
        ("GB200", 184, 2500, 8.0), ("B200", 178, 2250, 8.0), ("B100", 178, 1750, 8.0), ("H200", 139.8, 989, 4.8),
        ("GH200", 94, 989, 4.0), ("H100 NVL", 93, 835, 3.9), ("H100 PCIe", 79, 756, 2.0), ("H100", 79, 989, 3.35),
        ("H800", 79, 989, 3.35), ("A100 40GB", 39.4, 312, 1.56), ("A100", 79, 312, 2.0), ("A800", 79, 312, 2.0),
        ("A40", 44.4, 150, 0.7), ("A10G", 22, 70, 0.6), ("A10", 22, 125, 0.6), ("L40S", 44.4, 362, 0.86),
        ("L40", 44.4, 181, 0.86), ("L4", 22, 121, 0.3), ("RTX 6000 Ada", 47.4, 364, 0.96),
        ("RTX A6000", 47.4, 155, 0.77), ("RTX 5090", 31.4, 210, 1.79), ("RTX 4090", 23.5, 165, 1.01),
        ("RTX 3090", 23.6, 71, 0.94), ("RTX 2080 Ti", 10.6, 54, 0.62, "float16"), ("T4", 14.6, 65, 0.32, "float16"),
        ("V100 16GB", 15.7, 125, 0.9, "float16"), ("V100", 31.7, 125, 0.9, "float16"),
    )
)  # fmt: skip
"""Data sheets of NVIDIA; a card of two sizes is the larger one where its name leaves that open."""

PROC = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver lists the cards."""


NO_BF16 = (
    "no bfloat16: products and frozen weights are in float16, adapters and weights that are trained in float32 with scaled gradients,"
    " and the update pads its rows; nothing was measured on such a card"
)
"""What a run does on a card whose `half` is float16, in words."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """`count` GPUs of one kind; None if the recipe determines the number."""

    card: Gpu
    count: int | None = None
    is_here: bool = False


def card_of(name: str) -> Gpu | None:
    """The card of a full name, as torch and the driver give it; None where it is not in the table."""
    said = _words(name)
    found = [card for card in CARDS if _words(card.name) <= said]
    return max(found, key=lambda card: len(_words(card.name)), default=None)


def read_cards(text: str) -> Gpus:
    """The cards that a person names: `h100`, `RTX 4090` or `4090`, `8xH100`; or `16,97,0.72`, a card's own figures.

    Raises:
        UsageError: there is no such card here.
    """
    times = re.fullmatch(r"\s*(\d+)\s*[x×*]\s*(.+)", text)
    count, name = (int(times[1]), times[2]) if times else (None, text)
    if count == 0:
        raise UsageError("`0` cards train nothing", place="--gpu")
    if name.count(",") == 2:
        with suppress(ValueError):
            memory, tflops, bandwidth = (float(part) for part in name.split(","))
            if all(0 < figure < 1e6 for figure in (memory, tflops, bandwidth)):
                return Gpus(Gpu(f"card of {memory:g} GiB", memory, tflops, bandwidth), count)
    # a name that a person cut short
    short = [one for one in CARDS if _words(name) <= _words(one.name)]
    card = card_of(name) or (short[0] if len(short) == 1 else None)
    if card is None:
        names = [one.name for one in CARDS]
        close = nearest(name.upper(), names)
        hint = f"did you mean `{close}`? " if close else ""
        raise UsageError(
            f"`{name}` is no card that is known here",
            place="--gpu",
            hint=f"{hint}one of {', '.join(names)}; or its GiB, TFLOP/s in half precision and TB/s: `--gpu 16,97,0.72`",
        )
    return Gpus(card, count)


def cards_here(proc: Path = PROC) -> Gpus | None:
    """The cards of this machine as NVIDIA's driver names them, without torch; None where it has none, or unknown ones."""
    try:
        texts = [path.read_text() for path in sorted(proc.glob("*/information"))]
    except OSError:
        return None
    names = [found[1].strip() for text in texts if (found := re.search(r"^Model:\s*(.+)$", text, re.M))]
    card = card_of(names[0]) if names else None
    return None if card is None else Gpus(card, len(names), is_here=True)


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s_-]+", name.strip().upper().replace("RTX", "RTX ")))
