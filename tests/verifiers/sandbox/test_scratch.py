"""Temporary files of a run: there in both tiers, gone for the next run, and never more than their folder."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Verdict
from grpo_verifiers.program import CodeOptions, CodeVerifier
from grpo_verifiers.sandbox import folder, tiers
from grpo_verifiers.sandbox.folder import PREFIX, ScratchFolder
from grpo_verifiers.sandbox.lanes import Lanes, LaneSlot
from tests.builders.code_verifiers import in_tier

SOURCES = str(Path(tiers.__file__).parents[2])


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def verifier(request: pytest.FixtureRequest) -> Iterator[CodeVerifier]:
    made = in_tier(request.param)
    yield made
    made.close()


def printed(verifier: CodeVerifier, code: str, output: str, **row: Any) -> Verdict:
    return verifier.verify(f"```python\n{code}\n```", {"tests": [{"input": "", "output": output}], **row})


@pytest.mark.parametrize(
    "code",
    [
        "open('a.txt', 'w').write('hi')\nprint(open('a.txt').read())",
        "import tempfile\nwith tempfile.NamedTemporaryFile('w+') as f:\n    f.write('hi')\n    f.seek(0)\n    print(f.read())",
        "import tempfile, pathlib\nwith tempfile.TemporaryDirectory() as d:\n    p = pathlib.Path(d) / 'x'\n    p.write_text('hi')\n    print(p.read_text())",
        "import os\nos.makedirs('a/b')\nopen('a/b/x', 'w').write('hi')\nos.rename('a/b/x', 'y')\nos.replace('y', 'z')\nprint(open('z').read())",
        "import sqlite3\nc = sqlite3.connect('a.db')\nc.execute('create table t (x)')\nc.execute(\"insert into t values ('hi')\")\nc.commit()\nprint(c.execute('select x from t').fetchone()[0])",
    ],
)
def test_a_program_may_write_files_of_its_own(verifier: CodeVerifier, code: str) -> None:
    verdict = printed(verifier, code, "hi")
    assert verdict.score == 1.0, verdict


@pytest.mark.parametrize(
    "code",
    [
        "import shutil, os\nos.mkdir('d')\nopen('d/x', 'w').write('hi')\nshutil.copy('d/x', 'y')\nshutil.rmtree('d')\nprint(open('y').read())",
        "import shutil, os\nopen('x', 'w').write('hi')\nshutil.copy2('x', 'y')\nos.mkdir('d')\nshutil.move('y', 'd/z')\nshutil.copytree('d', 'e')\nprint(open('e/z').read())",
        "import os, pathlib\nopen('x', 'w').write('hi')\nos.chmod('x', 0o644)\nos.utime('x')\npathlib.Path('x').touch()\nprint(open('x').read())",
    ],
)
def test_modes_of_own_files_can_be_changed_in_namespaces(code: str) -> None:
    made = CodeVerifier(CodeOptions(lanes=1, sandbox="namespaces"))
    verdict = printed(made, code, "hi")
    made.close()
    assert verdict.score == 1.0, verdict


@pytest.mark.parametrize("place", ["tempfile.mkdtemp()", "'.'"])
def test_a_test_program_and_a_solution_share_files(verifier: CodeVerifier, place: str) -> None:
    tests = (
        f"import os, tempfile\npath = os.path.join({place}, 'in.txt')\nopen(path, 'w').write('3 4')\n"
        "assert total(path) == 7\nassert open(path + '.out').read() == '7'"
    )
    code = (
        "def total(path):\n    found = sum(map(int, open(path).read().split()))\n"
        "    with open(path + '.out', 'w') as f:\n        f.write(str(found))\n    return found\n"
    )
    assert verifier.verify(code, {"entry_point": "total", "tests": tests}).score == 1.0
    wrong = verifier.verify(code.replace("str(found)", "'8'"), {"entry_point": "total", "tests": tests})
    assert (wrong.score, wrong.reason) == (0.0, "test_failed")


DEEP = "import os\nfor i in range(1500):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\nopen('x', 'w').write('x')\nprint('hi')"
CLOSED = "import os\nopen('x', 'w').write('x')\nos.mkdir('d')\nopen('d/x', 'w')\nos.chmod('d', 0)\nos.chmod('.', 0)"
HIDDEN = "import os\nos.mkdir('h', 0o300)\nopen('h/x', 'w').write('x')\nos.mkdir('n', 0)\nprint('hi')"


def test_deep_folders_are_no_fault_where_they_cost_nothing() -> None:
    made = CodeVerifier(CodeOptions(lanes=1, sandbox="namespaces"))
    assert printed(made, DEEP, "hi").score == 1.0
    made.close()


@pytest.mark.parametrize("code", [DEEP, HIDDEN, CLOSED, "open('left', 'w').write('x')\nprint('hi')"])
def test_nothing_of_a_run_is_there_for_the_next(verifier: CodeVerifier, code: str) -> None:
    assert verifier._lanes is not None
    lane = verifier._lanes._slots[0].lane("plain")
    assert printed(verifier, code, "" if code == CLOSED else "hi", timeout=20).score is not None
    assert (
        printed(verifier, "import os\nprint(os.getcwd() == os.path.realpath('.'), os.listdir())", "True []").score
        == 1.0
    )
    assert verifier._lanes._slots[0].lane("plain") is lane


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(100000):\n    open(f'f{i}', 'w').write('x' * (4 << 20))",
        "import os\nos.mkdir('h', 0o300)\nfor i in range(100000):\n    open(f'h/f{i}', 'w').write('x' * (4 << 20))",
        "for i in range(10**7):\n    open(f'f{i}', 'w')",
        "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
    ],
)
def test_a_run_cannot_fill_the_disk(verifier: CodeVerifier, code: str) -> None:
    before = os.statvfs(tempfile.gettempdir()).f_bavail
    verdict = printed(verifier, code, "hi", timeout=20)
    assert verdict.score == 0.0, verdict
    assert verdict.reason in ("output", "exit:1"), verdict  # told by the lane, or by the file system's own size
    left = (before - os.statvfs(tempfile.gettempdir()).f_bavail) * os.statvfs("/tmp").f_frsize
    assert left < 64 << 20


@pytest.mark.parametrize(
    "attempt",
    [
        "open('{outside}/x', 'w')",
        "open('{outside}/there', 'a').write('x')",
        "open('{outside}/there').read()",
        "os.truncate('{outside}/there', 0)",
        "os.unlink('{outside}/there')",
        "os.rename('{outside}/there', 'mine')",
        "open('own', 'w').close(), os.rename('own', '{outside}/x')",
        "os.symlink('{outside}/there', 'way'), open('way').read()",
        "os.link('{outside}/there', 'way'), open('way').read()",
        "os.mkfifo('pipe')",
        "os.listdir('{outside}')",
    ],
)
def test_nothing_else_can_be_read_or_written(verifier: CodeVerifier, attempt: str, tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    (tmp_path / "there").write_text("kept")
    (tmp_path / "there").chmod(0o666)
    code = f"import os\ntry:\n    {attempt.format(outside=tmp_path)}\n    print('open')\nexcept OSError:\n    print('refused')"
    assert printed(verifier, code, "refused").score == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["there"] and (tmp_path / "there").read_text() == "kept"


@pytest.mark.parametrize(
    "call", ["os.chmod(path, 0o777)", "os.utime(path, (1, 1))", "os.chmod(os.open(path, os.O_RDONLY), 0o777)"]
)
def test_modes_and_times_of_other_files_stay(verifier: CodeVerifier, call: str) -> None:
    path = json.__file__
    before = os.stat(path)
    printed(verifier, f"import os\npath = {path!r}\n{call}", "")
    after = os.stat(path)
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)


def test_slots_do_not_reach_each_others_folders() -> None:
    slots = [LaneSlot("landlock"), LaneSlot("landlock")]
    for slot in slots:
        slot.lane("plain")
    paths = [slot._scratch.path for slot in slots if slot._scratch]
    Path(paths[0], "theirs").write_text("x")
    verifier = CodeVerifier(CodeOptions(lanes=1))
    tier = tiers.try_tier("landlock")
    assert isinstance(tier, tiers.Tier)
    verifier.tier, verifier._lanes = tier, Lanes("landlock", 1)
    code = f"try:\n    open({paths[0]!r} + '/theirs').read()\n    print('open')\nexcept OSError:\n    print('refused')"
    assert printed(verifier, code, "refused").score == 1.0
    verifier.close()
    for slot in slots:
        slot.discard()
    assert not any(os.path.exists(path) for path in paths)


def test_a_folder_that_a_killed_process_left_is_taken_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    body = "from grpo_verifiers.sandbox.folder import ScratchFolder as S; import os; s = S(); print(s.path, flush=True); os.kill(os.getpid(), 9)"
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": SOURCES}
    said = subprocess.run([sys.executable, "-c", body], env=env, capture_output=True, text=True, check=False)
    left = Path(said.stdout.strip())
    (left / "deep" / "er").mkdir(parents=True)
    ScratchFolder().close()
    assert left.exists()  # young: another process may be about to take its lock
    monkeypatch.setattr(folder, "YOUNG_S", -1.0)
    held = ScratchFolder()
    assert not left.exists()
    other = ScratchFolder()
    assert glob.glob(str(tmp_path / (PREFIX + "*"))) and os.path.exists(held.path)
    held.close()
    other.close()
    assert not list(tmp_path.glob(PREFIX + "*"))


def test_the_manifest_says_what_may_be_written() -> None:
    for name in ("namespaces", "landlock"):
        tier = tiers.try_tier(name)
        assert isinstance(tier, tiers.Tier) and tier.has_scratch
        assert "no scratch files" not in tier.warnings
        assert "writable / writable" in json.dumps(
            [f"{c.asked} / {c.got}" for c in tier.checks if c.name == "scratch files"]
        )
    weak = tiers.try_tier("weak")
    assert isinstance(weak, tiers.Tier) and not weak.has_scratch and "no scratch files" in weak.warnings


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_packages_that_lie_among_temporary_files_are_there(tier: str, tmp_path: Path) -> None:
    package = tmp_path / "sortedcontainers"
    package.mkdir()
    (package / "__init__.py").write_text("WHERE = 'among temporary files'")
    code = f"""
from tests.builders.code_verifiers import in_tier
verifier = in_tier({tier!r})
print(verifier.verify("import sortedcontainers\\ndef where(): return sortedcontainers.WHERE",
    {{"tests": ["assert where() == 'among temporary files'"]}}))
verifier.close()
"""
    assert str(tmp_path).startswith(tempfile.gettempdir())
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "score=1.0" in done.stdout, done.stdout + done.stderr
