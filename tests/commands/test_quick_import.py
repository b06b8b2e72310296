"""Imports are made without the collector, which is as it was afterwards."""

from __future__ import annotations

import gc

from grpo_cli.commands.quick_import import without_collecting


def test_the_collector_rests_inside_and_works_again_after() -> None:
    assert gc.isenabled()
    with without_collecting():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()


def test_a_failed_import_switches_it_on_again() -> None:
    try:
        with without_collecting():
            raise ImportError
    except ImportError:
        pass
    assert gc.isenabled()
    gc.unfreeze()
