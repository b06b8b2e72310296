"""How many threads this process may use."""

from __future__ import annotations

import os

from grpo_cli.policy import threads


def test_a_v2_quota_counts_in_cores(tmp_path):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert threads.cgroup_quota(tmp_path, tmp_path / "none") == 1.5


def test_the_tightest_parent_wins(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000")
    (tmp_path / "a" / "cpu.max").write_text("400000 100000")
    membership = tmp_path / "cgroup"
    membership.write_text("0::/a/b\n")
    assert threads.cgroup_quota(tmp_path, membership) == 4


def test_a_v1_quota_is_read_and_minus_one_is_none(tmp_path):
    folder = tmp_path / "cpu" / "box"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("50000")
    (folder / "cpu.cfs_period_us").write_text("100000")
    membership = tmp_path / "cgroup"
    membership.write_text("4:cpu,cpuacct:/box\n3:memory:/box\n")
    assert threads.cgroup_quota(tmp_path, membership) == 0.5
    (folder / "cpu.cfs_quota_us").write_text("-1")
    assert threads.cgroup_quota(tmp_path, membership) is None


def test_what_is_asked_for_comes_first_then_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.choose_threads(5) == (5, "asked for")
    assert threads.choose_threads() == (3, "OMP_NUM_THREADS")


def test_busy_neighbours_leave_fewer_threads_but_never_none(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for load, expected in ((0.2, 4), (2.1, 2), (9.0, 1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0, 0))
        assert threads.choose_threads()[0] == expected
