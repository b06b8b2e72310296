"""The catalogue of code cases, with what must not happen watched from outside the sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Sample
from grpo_verifiers.program import CodeOptions, CodeVerifier, code_row
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lanes import Lanes

CASES = [
    json.loads(line)
    for name in ("code_dev.jsonl", "code_own.jsonl")
    for line in (Path(__file__).parents[2] / "cases" / name).read_text().splitlines()
]
NOT_CARRIED = {
    name: reason
    for name, reason, *_ in (
        line.split()
        for line in (Path(__file__).parents[2] / "cases" / "code_not_carried.txt").read_text().splitlines()[2:]
    )
}
TIERS = ("namespaces", "landlock")
SLOW = [
    c
    for c in CASES
    if any(m["type"] == "slow" for m in c["must_not"])
    or c["id"].startswith("code-honest-wrong-06")
    or (c["id"].startswith("code-own-a") and c["timeout"] < 4)
]
FAST = [c for c in CASES if c not in SLOW]
# these names are written into the cases
SECRET, KEPT = Path("/tmp/grpo_canary_secret.txt"), Path("/tmp/grpo_canary_keep.txt")
SENTINEL_PID, DATA_SET = Path("/tmp/grpo_sentinel.pid"), Path("/tmp/grpo_cases_current.jsonl")
HOME_SECRET = Path.home() / ".grpo_canary_secret"
CANARY = "grpo-canary-5f1e77"
PORT = 47613


@dataclass
class Watch:
    """What the host saw while the cases ran."""

    connections: int = 0
    messages: int = 0
    sentinel: subprocess.Popen[bytes] | None = None
    threads: list[threading.Thread] = field(default_factory=list)


def verifier_in(tier: str, lanes: int = 2) -> CodeVerifier:
    found = tiers.try_tier(tier)
    assert isinstance(found, tiers.Tier), f"tier {tier} does not work here: {found}"
    verifier = CodeVerifier(CodeOptions(lanes=lanes))
    verifier.tier, verifier._lanes = found, Lanes(tier, lanes)
    return verifier


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setenv("GRPO_CANARY_SECRET", CANARY)
    for path in (SECRET, HOME_SECRET):
        path.write_text(CANARY)
    KEPT.write_text("keep")
    DATA_SET.write_text("\n".join(map(json.dumps, CASES)))
    seen = Watch(sentinel=subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
    assert seen.sentinel is not None
    SENTINEL_PID.write_text(str(seen.sentinel.pid))
    with socket.create_server(("127.0.0.1", PORT)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0grpo_canary")
        unix.listen()

        def count(server: socket.socket, name: str) -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()
                    setattr(seen, name, getattr(seen, name) + 1)

        for server, name in ((tcp, "connections"), (unix, "messages")):
            threading.Thread(target=count, args=(server, name), daemon=True).start()
        yield seen
        for server in (tcp, unix):
            server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
    seen.sentinel.kill()
    seen.sentinel.wait()
    for path in (SECRET, HOME_SECRET, KEPT, DATA_SET, SENTINEL_PID):
        path.unlink(missing_ok=True)


def judge(cases: list[dict[str, Any]], tier: str) -> list[str]:
    """Run the cases; what went wrong, as text."""
    verifier = verifier_in(tier)
    try:
        verdicts = verifier.judge([Sample(c["code"], verifier.compile(code_row(c))) for c in cases])
    finally:
        verifier.close()
    return [
        f"{c['id']} ({c['why']}): {v.outcome} {v.score} {v.reason}, expected {c['expected']}"
        for c, v in zip(cases, verdicts, strict=True)
        if (v.score, v.reason) != (None, NOT_CARRIED.get(c["id"], ""))
        and (c["id"] in NOT_CARRIED or v.score is None or abs(v.score - c["expected"]) > 1e-9)
    ]


def side_effects(cases: list[dict[str, Any]], watch: Watch) -> list[str]:
    assert watch.sentinel is not None
    found = [m["path"] for c in cases for m in c["must_not"] if m["type"] == "file" and Path(m["path"]).exists()]
    if watch.connections or watch.messages:
        found.append(f"{watch.connections} connections, {watch.messages} messages")
    if watch.sentinel.poll() is not None:
        found.append("the sentinel was killed")
    if KEPT.read_text() != "keep" or SECRET.read_text() != CANARY:
        found.append("a file of the host was changed")
    roots = [Path(p) for p in sys.path if p.endswith(("site-packages", "python3.11"))]
    found += [str(p) for root in roots for p in root.glob("grpo_pwned_*")]
    return found


@pytest.mark.parametrize("tier", TIERS)
def test_every_case_that_ends_by_itself_is_judged_right(tier: str, watch: Watch) -> None:
    assert judge(FAST, tier) == []
    assert side_effects(FAST, watch) == []


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_every_case_that_bursts_a_limit_is_judged_right(tier: str, watch: Watch) -> None:
    before = time.monotonic()
    assert judge(SLOW, tier) == []
    assert time.monotonic() - before < sum(3 * c["timeout"] + 1 for c in SLOW)
    time.sleep(1.5)  # a daemon of the completion would write its file by now
    assert side_effects(SLOW, watch) == []


def test_a_row_that_needs_scratch_has_no_verdict_where_there_is_none() -> None:
    verifier = verifier_in("weak", 1)
    case = next(c for c in CASES if c.get("needs") == "scratch")
    verdict = verifier.verify(case["code"], code_row(case))
    verifier.close()
    assert (verdict.outcome, verdict.score, verdict.reason) == ("error", None, "no_scratch")


def test_nothing_is_left_running_after_close() -> None:
    verifier = verifier_in("namespaces", 2)
    verifier.judge([Sample("print(1)", verifier.compile({"tests": [{"input": "", "output": "1"}]}))] * 4)
    assert verifier._lanes is not None
    processes = [lane.process for slot in verifier._lanes._slots for lane in slot._lanes.values()]
    verifier.close()
    assert processes and all(p.poll() is not None for p in processes)
    assert not any(os.path.exists(f"/proc/{p.pid}/stat") for p in processes)
