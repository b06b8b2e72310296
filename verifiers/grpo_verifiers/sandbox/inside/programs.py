"""Compilers and programs of other languages: files laid out in the scratch folder, then exec.

A compiler's product leaves through a memory file and is laid out again for each test, so no test finds what another left.
"""

from __future__ import annotations

import os
from typing import Any

FOLDER = "/tmp"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": FOLDER, "TMPDIR": FOLDER, "LANG": "C.UTF-8"}


def run(payload: dict[str, Any], out: int) -> int:
    """Exec the program; with `keep` run it as a child and hand out the file it made."""
    os.chdir(FOLDER)
    for name, text in payload["files"].items():
        with open(name, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
    keep = payload.get("keep")
    if not keep:
        if payload.get("product"):
            _lay_out(out, payload["product"])
        if out >= 0:
            os.close(out)
        os.execve(payload["argv"][0], payload["argv"], ENVIRONMENT)
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            os.execve(payload["argv"][0], payload["argv"], ENVIRONMENT)
        finally:
            os._exit(127)
    _, status = os.waitpid(child, 0)
    if status == 0:
        with open(keep, "rb") as file:
            while chunk := file.read(1 << 20):
                os.write(out, chunk)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _lay_out(source: int, name: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    at = 0
    while chunk := os.pread(source, 1 << 20, at):
        view = memoryview(chunk)
        while view:
            view = view[os.write(fd, view) :]
        at += len(chunk)
    os.close(fd)
