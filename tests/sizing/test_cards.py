"""Gpus by the names that torch, the driver and people give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import UsageError
from grpo_cli.sizing.cards import CARDS, card_of, cards_here, read_cards


@pytest.mark.parametrize(
    ("name", "rate", "memory"),
    [
        ("NVIDIA H200", 989, 139.8),
        ("NVIDIA H100 80GB HBM3", 989, 79),
        ("NVIDIA H100 PCIe", 756, 79),
        ("NVIDIA H100 NVL", 835, 93),
        ("NVIDIA GH200 480GB", 989, 94),
        ("NVIDIA A100-SXM4-80GB", 312, 79),
        ("NVIDIA A100-SXM4-40GB", 312, 39.4),
        ("NVIDIA A10G", 70, 22),
        ("NVIDIA L40S", 362, 44.4),
        ("NVIDIA RTX 6000 Ada Generation", 364, 47.4),
        ("NVIDIA GeForce RTX 4090", 165, 23.5),
        ("Tesla T4", 65, 14.6),
        ("Tesla V100-SXM2-16GB", 125, 15.7),
        ("Tesla V100-SXM2-32GB", 125, 31.7),
        ("NVIDIA GeForce RTX 2080 Ti", 54, 10.6),
    ],
)
def test_a_card_is_known_by_the_name_torch_gives(name: str, rate: float, memory: float) -> None:
    card = card_of(name)
    assert card is not None
    assert (card.tflops, card.memory) == (rate, memory)


def test_an_old_card_is_not_known() -> None:
    assert card_of("NVIDIA GeForce GTX 1080") is None


@pytest.mark.parametrize(
    ("said", "name", "count"),
    [
        ("h100", "H100", None),
        ("H100-PCIe", "H100 PCIe", None),
        ("4090", "RTX 4090", None),
        ("rtx4090", "RTX 4090", None),
        ("l40s", "L40S", None),
        ("a100 40gb", "A100 40GB", None),
        ("8xh200", "H200", 8),
        (" 2 x 4090 ", "RTX 4090", 2),
    ],
)
def test_people_cut_names_short(said: str, name: str, count: int | None) -> None:
    found = read_cards(said)
    assert (found.card.name, found.count, found.is_here) == (name, count, False)


def test_a_card_that_is_not_in_the_table_takes_its_own_figures() -> None:
    found = read_cards("2x 16, 97,0.72")
    assert (found.count, found.card.memory, found.card.tflops, found.card.bandwidth) == (2, 16, 97, 0.72)
    assert found.card.name == "card of 16 GiB" and found.card.half == "bfloat16"
    for said in ("16,97", "16,0,0.7", "16,97,x", "nan,97,0.7", "16,97,0.7,1", "-16,97,0.7"):
        with pytest.raises(UsageError) as error:
            read_cards(said)
        assert "`--gpu 16,97,0.72`" in (error.value.hint or "")


def test_cards_before_ampere_compute_in_float16() -> None:
    assert {card.name for card in CARDS if card.half == "float16"} == {"T4", "V100", "V100 16GB", "RTX 2080 Ti"}


@pytest.mark.parametrize(
    ("said", "part"), [("h1000", "did you mean `H100`"), ("0xh100", ""), ("rtx", "one of"), ("", "one of")]
)
def test_no_such_card_is_said_with_those_there_are(said: str, part: str) -> None:
    with pytest.raises(UsageError) as error:
        read_cards(said)
    assert part in (error.value.hint or "")


def test_the_driver_says_what_is_here(tmp_path: Path) -> None:
    assert cards_here(tmp_path) is None
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t 40\n")
    found = cards_here(tmp_path)
    assert found is not None
    assert (found.card.name, found.count, found.is_here) == ("H200", 2, True)


def test_a_card_that_is_here_and_unknown_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "information").write_text("Model: GeForce GTX 1080\n")
    assert cards_here(tmp_path) is None
