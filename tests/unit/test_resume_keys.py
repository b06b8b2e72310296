"""What counts as a changed recipe when a run is resumed."""

from __future__ import annotations

from grpo_cli.train.resume import differing_keys

OLD = "train: {lr: 1e-6}\nlaunch: {nodes: 2, node_rank: 0, rendezvous: 'a:1'}\n"


def test_changed_keys_are_named_by_their_path() -> None:
    assert differing_keys(OLD, OLD.replace("1e-6", "1e-5").replace("nodes: 2", "nodes: 3")) == [
        "launch.nodes",
        "train.lr",
    ]


def test_another_machine_or_another_allocation_is_no_change() -> None:
    assert differing_keys(OLD, OLD.replace("node_rank: 0", "node_rank: 1").replace("a:1", "b:1")) == []
