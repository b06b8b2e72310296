"""The sandbox in bad company: threads, forks, a killed parent, tight limits, a container that forbids namespaces."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Sample, Unavailable, build
from grpo_verifiers.program import CodeOptions, CodeVerifier
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lane import Lane, memory_files, read_file
from grpo_verifiers.sandbox.lanes import Lanes

SOURCES = os.pathsep.join(str(Path(__file__).parents[3] / part) for part in (".", "verifiers"))
ROW = {"entry_point": "double", "tests": ["assert double(2) == 4", "xs = [1]\nassert double(xs) == [1, 1]"]}
GOOD, BAD = "def double(x):\n    return x * 2\n", "def double(x):\n    return x\n"


def scripted(
    body: str, before: Callable[[], None] | None = None, python: str = sys.executable
) -> subprocess.Popen[str]:
    """A fresh interpreter that runs a script; `before` runs in it before the exec."""
    return subprocess.Popen(
        [python, "-c", textwrap.dedent(body)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    out = []
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = [int(p) for p in child.read_text().split()]
        except OSError:
            continue
        for found in pids:
            out += [found, *descendants(found)]
    return out


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(100)"])
def test_nothing_survives_a_killed_parent(tier: str, code: str) -> None:
    parent = scripted(f"""
        import threading, time
        from grpo_verifiers.program import CodeOptions, CodeVerifier
        from grpo_verifiers.sandbox.lanes import Lanes
        v = CodeVerifier(CodeOptions(lanes=2, timeout=60.0))
        v.ready(); v._lanes = Lanes({tier!r}, 2)
        row = {{"tests": [{{"input": "", "output": "1"}}]}}
        threads = [threading.Thread(target=v.verify, args=({code!r}, row)) for _ in range(2)]
        for t in threads: t.start()
        time.sleep(1.0); print("running", flush=True); time.sleep(100)
    """)
    assert parent.stdout is not None and parent.stdout.readline() == "running\n"
    assert wait_for(lambda: len(descendants(parent.pid)) >= 4)  # on a busy machine lanes take their time
    pids = descendants(parent.pid)
    parent.kill()
    parent.communicate()
    assert wait_for(lambda: not alive(pids)), alive(pids)


@pytest.mark.slow
def test_a_test_program_that_spins_does_not_survive_a_killed_parent() -> None:
    parent = scripted("""
        import threading, time
        from grpo_verifiers.program import CodeOptions, CodeVerifier
        v = CodeVerifier(CodeOptions(lanes=1, timeout=1.0))
        row = {"tests": "def check(candidate):\\n    x = candidate()\\n    while True:\\n        assert x is None", "entry_point": "f"}
        threading.Thread(target=v.verify, args=("def f(): pass", row)).start()
        time.sleep(0.9); print("running", flush=True); time.sleep(100)
    """)
    assert parent.stdout is not None and parent.stdout.readline() == "running\n"
    pids = descendants(parent.pid)
    assert pids
    parent.kill()
    parent.communicate()
    assert wait_for(lambda: not alive(pids), 20.0), alive(pids)


def test_many_threads_share_the_lanes() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=2))
    gold, seen = verifier.compile(ROW), []

    def work() -> None:
        for code in (GOOD, BAD):
            seen.append((code == GOOD, verifier.judge([Sample(code, gold)] * 2)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verifier.close()
    assert len(seen) == 12
    assert all([v.score for v in verdicts] == [float(good)] * 2 for good, verdicts in seen)


def test_lanes_outlive_the_thread_that_started_them() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    starter = threading.Thread(target=verifier.start)
    starter.start()
    starter.join()
    assert verifier._lanes is not None
    lane = verifier._lanes._slots[0].lane("plain")
    assert verifier.verify(GOOD, ROW).score == 1.0
    assert verifier._lanes._slots[0].lane("plain") is lane
    verifier.close()


def test_a_forked_copy_starts_lanes_of_its_own() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    assert verifier.verify(GOOD, ROW).score == 1.0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if verifier.verify(GOOD, ROW).score == 1.0 else 2
            verifier.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert verifier.verify(BAD, ROW).score == 0.0
    verifier.close()


def test_a_verifier_and_its_golds_can_be_pickled() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    verifier.start()
    copy, gold = pickle.loads(pickle.dumps((verifier, verifier.compile(ROW))))
    assert copy.judge([Sample(GOOD, gold)])[0].score == 1.0
    verifier.close()
    copy.close()


def test_a_lane_that_dies_is_replaced_and_the_completion_judged() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    verifier.start()
    assert verifier._lanes is not None
    lane = verifier._lanes._slots[0].lane("plain")
    lane.process.kill()
    assert verifier.verify(GOOD, ROW).score == 1.0
    verifier.close()


def test_a_program_may_sleep_for_its_whole_wall_limit() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1, timeout=1.0))
    row = {"tests": [{"input": "", "output": "7"}]}
    assert verifier.verify("import time\ntime.sleep(2.2)\nprint(7)", row).outcome == "right"
    assert verifier.verify("import time\ntime.sleep(9)\nprint(7)", row).reason == "wall_time"
    verifier.close()


def test_a_sandbox_that_keeps_failing_gives_no_verdict() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    verifier.start()
    assert verifier._lanes is not None
    verifier._lanes._slots[0].tier = "no-such-tier"
    verifier._lanes._slots[0].discard()
    verdict = verifier.verify(GOOD, ROW)
    assert (verdict.outcome, verdict.score, verdict.reason) == ("error", None, "sandbox")
    verifier.close()


def test_no_tier_means_unavailable_with_the_three_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_found", {"namespaces": "refused", "landlock": "no Landlock"})
    with pytest.raises(Unavailable) as caught:
        build("code").start()
    assert all(word in caught.value.hint for word in ("user namespaces", "5.13", "least: weak"))


@pytest.mark.parametrize(
    ("trouble", "mend"),
    [
        ("No usable temporary directory found in ['/x']", "TMPDIR"),
        ("Resource temporarily unavailable", "ulimit -u"),
        ("Cannot allocate memory", "ulimit -v"),
        ("Too many open files", "ulimit -n"),
    ],
)
def test_what_a_limit_of_the_shell_is_to_blame_for_is_said_so(
    monkeypatch: pytest.MonkeyPatch, trouble: str, mend: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(11, trouble)

    monkeypatch.setattr(tiers, "_found", {})
    monkeypatch.setattr(tiers, "Lane", refuse)
    with pytest.raises(Unavailable) as caught:
        build("code").start()
    assert mend in caught.value.hint


@pytest.mark.parametrize(
    "limits",
    [
        {resource.RLIMIT_NOFILE: 48},
        {resource.RLIMIT_AS: 3 << 30},
        {resource.RLIMIT_AS: 600 << 20, resource.RLIMIT_CPU: 300},
        {resource.RLIMIT_NPROC: 200, resource.RLIMIT_FSIZE: 1 << 26, resource.RLIMIT_STACK: 8 << 20},
    ],
)
def test_it_works_under_ulimits(limits: dict[int, int]) -> None:
    def before() -> None:
        for what, most in limits.items():
            resource.setrlimit(what, (most, most))

    out, err = scripted(JUDGE_BOTH, before).communicate()
    assert json.loads(out)["scores"] == [1.0, 0.0, 1.0], err


JUDGE_BOTH = f"""
import json
from grpo_verifiers import Unavailable
from grpo_verifiers.program import CodeOptions, CodeVerifier
v = CodeVerifier(CodeOptions(lanes=1))
row = {ROW!r}
io = {{"tests": [{{"input": "3", "output": "6"}}]}}
try:
    scores = [v.verify({GOOD!r}, row).score, v.verify({BAD!r}, row).score, v.verify("print(int(input()) * 2)", io).score]
    print(json.dumps({{"tier": v.tier.name, "scores": scores, "failed": dict(v.tier.failed)}}))
except Unavailable as err:
    print(json.dumps({{"tier": None, "why": str(err)}}))
v.close()
"""


def test_a_container_without_namespaces_gets_landlock() -> None:
    """Docker's default profile: no unshare, mount or clone with new namespaces, clone3 unknown, no capabilities."""
    out, err = scripted(JUDGE_BOTH, enter_docker_profile).communicate()
    got = json.loads(out)
    assert got["tier"] == "landlock", (got, err)
    assert got["scores"] == [1.0, 0.0, 1.0]
    assert "namespaces" in got["failed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("profile", "tier"), [(False, "namespaces"), (True, "landlock")])
def test_it_works_as_a_plain_user(profile: bool, tier: str) -> None:
    python = next((p for p in (sys.executable, "/usr/bin/python3") if readable_by_all(p)), None)
    if python is None or subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode:
        pytest.skip("no interpreter of 3.11 or newer that a plain user can read")
    if not all(readable_by_all(part) for part in SOURCES.split(os.pathsep)):
        pytest.skip("a plain user cannot read the sources")

    def before() -> None:
        if profile:
            enter_docker_profile()
        os.setgroups([])
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)

    out, err = scripted(JUDGE_BOTH, before, python).communicate()
    assert out, err
    got = json.loads(out)
    assert (got["tier"], got["scores"]) == (tier, [1.0, 0.0, 1.0]), (got, err)


def readable_by_all(path: str) -> bool:
    real = Path(os.path.realpath(path))
    return all(p.stat().st_mode & 0o005 for p in (real, *real.parents))


def enter_docker_profile() -> None:
    """Install a filter with the refusals of Docker's default profile; runs between fork and exec of a test's script."""
    import ctypes
    import platform
    import struct

    libc = ctypes.CDLL(None, use_errno=True)
    arm = platform.machine() != "x86_64"
    # unshare, mount, umount2, pivot_root, setns, bpf, perf_event_open, keyctl, add_key, userfaultfd
    refused = (
        [97, 40, 39, 41, 268, 280, 241, 219, 217, 282] if arm else [272, 165, 166, 155, 308, 321, 298, 250, 248, 323]
    )
    refused += [428, 429, 430, 431, 432, 433, 442]  # open_tree … fspick, mount_setattr
    clone = 220 if arm else 56
    code: list[tuple[int, int, int, int]] = [(0x20, 0, 0, 0)]
    for number in refused:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50001)]
    code += [(0x15, 0, 1, 435), (0x06, 0, 0, 0x50026)]
    code += [
        (0x15, 0, 3, clone),
        (0x20, 0, 0, 16),
        (0x45, 0, 1, 0x7E020000),
        (0x06, 0, 0, 0x50001),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    raw = b"".join(struct.pack("=HBBI", *line) for line in code)
    program = ctypes.create_string_buffer(raw, len(raw))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)), 16)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(header)), 0, 0) == 0
    for cap in range(41):
        libc.prctl(24, cap, 0, 0, 0)
    keep = (
        (1 << 6 | 1 << 7) if os.geteuid() == 0 else 0
    )  # setgid and setuid, so that the script may become another user
    caps = (ctypes.c_uint32 * 6)(keep, keep, 0, 0, 0, 0)
    libc.capset(ctypes.byref((ctypes.c_uint32 * 2)(0x20080522, 0)), ctypes.byref(caps))


def test_the_trainer_is_never_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise AssertionError("os.fork in the caller")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(signal, "signal", refuse)
    verifier = CodeVerifier(CodeOptions(lanes=1))
    assert verifier.verify(GOOD, ROW).score == 1.0
    verifier.close()


def test_the_tier_is_told_for_the_manifest() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    verifier.start()
    assert verifier.tier is not None
    told = json.loads(json.dumps(verifier.tier.as_json()))
    assert told["tier"] == verifier.tier.name and told["checks"]["network"] == {"asked": "refused", "got": "refused"}
    verifier.close()


def test_lanes_can_be_made_for_each_tier_by_name() -> None:
    for tier in ("namespaces", "landlock", "weak"):
        assert isinstance(tiers.try_tier(tier), tiers.Tier), tiers.try_tier(tier)
        lanes = Lanes(tier, 1)
        lanes.warm()
        lanes.close()


def test_a_run_has_the_threads_and_the_chance_of_a_process_of_its_own() -> None:
    program = """
import random, threading, queue
box = queue.Queue()
workers = [threading.Thread(target=lambda i=i: box.put(i * i)) for i in range(4)]
for worker in workers: worker.start()
for worker in workers: worker.join()
print(threading.main_thread().native_id == threading.get_native_id(), threading.active_count())
print(sorted(box.get() for _ in range(4)), random.getstate() == random.Random(0).getstate())
"""
    wanted = "True 1\n[0, 1, 4, 9] True\n"
    verifier = CodeVerifier(CodeOptions(lanes=1))
    gold = verifier.compile({"tests": [{"input": "", "output": wanted}] * 2})
    verdict = verifier.judge([Sample(program, gold)])[0]
    verifier.close()
    assert verdict.outcome == "right", verdict


def test_a_verdict_does_not_depend_on_chance_or_lane() -> None:
    draws = "import random\nprint(random.random(), hash('x'), list({'a', 'b', 'c'}))"
    payload = json.dumps({"code": draws, "entry": None, "prompt": "", "before": ""}).encode()
    limits = {"cpu_s": 2.0, "wall_s": 6.0, "memory_mb": 512, "output_bytes": 1 << 20}
    printed = set()
    for tier in ("namespaces", "landlock", "namespaces"):
        lane = Lane(tier)
        for _ in range(2):
            with memory_files(payload=payload, stdin=b"", stdout=None, stderr=None) as fds:
                lane.run("stdio", fds, limits)
                printed.add(read_file(fds["stdout"], 1000))
        lane.close()
    assert len(printed) == 1 and b"0." in printed.pop()
