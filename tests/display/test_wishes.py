"""Keys that ask the trainer for something, and keys as a terminal sends them."""

from __future__ import annotations

import io

from grpo_cli.display.choose import LoggedDisplay
from grpo_cli.display.protocol import KeyRequests
from grpo_cli.display.terminal.keys import keys_of
from grpo_cli.display.terminal.live import LiveDisplay


def test_save_and_evaluate_are_asked_for_once() -> None:
    wishes = KeyRequests()
    assert wishes.press("s") and wishes.press("e") and wishes.press("s")
    assert wishes.take() == {"save", "evaluate"}
    assert wishes.take() == set()


def test_pause_goes_on_at_the_second_press() -> None:
    wishes = KeyRequests()
    assert not wishes.is_paused
    wishes.press("p")
    assert wishes.is_paused
    wishes.press("p")
    assert not wishes.is_paused


def test_other_keys_ask_for_nothing() -> None:
    wishes = KeyRequests()
    assert [wishes.press(key) for key in ("n", "?", "up", "", "S")] == [None] * 5
    assert wishes.take() == set()


def test_the_live_display_tells_what_was_asked_and_other_displays_stay_silent() -> None:
    live, wishes = LiveDisplay(io.StringIO(), keys=False), KeyRequests()
    live._pressed("s")
    assert not live._state.snapshot(0.0).notes
    LoggedDisplay(live).offer(wishes)
    live._pressed("s")
    assert [note.text for note in live._state.snapshot(0.0).notes] == ["saving after this step"]
    assert wishes.take() == {"save"}


def test_keys_are_characters_and_arrows() -> None:
    assert keys_of(b"n?") == ["n", "?"]
    assert keys_of(b"\x1b[A\x1b[B\x1bOC\x1b[D\x1b[5~\x1b[6~") == ["up", "down", "right", "left", "page up", "page down"]
    assert keys_of(b"\x1b[15~\x1b[1;5A\x00\xff") == []
