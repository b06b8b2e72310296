"""Compilers and programs of other languages: files laid out in the scratch folder, then exec.

A compiler's product leaves through a memory file and is laid out again for each test, so no test finds what another left.
"""

from __future__ import annotations

import os
from typing import Any

FOLDER = "/tmp"
PRODUCTS_FD = 4
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": FOLDER, "TMPDIR": FOLDER, "LANG": "C.UTF-8"}


def run(payload: dict[str, Any], out: int) -> int:
    """Exec the program; with `keep` run it as a child and hand out the file it made."""
    os.chdir(FOLDER)
    for name, text in payload["files"].items():
        with open(name, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
    _lay_out(PRODUCTS_FD, payload["products"])
    keep = payload["keep"]
    if not keep:
        os.execve(payload["argv"][0], payload["argv"], ENVIRONMENT)
    child = os.fork()
    if child == 0:
        # a compiler must not write the product's bytes itself
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


def _lay_out(source: int, sizes: list[tuple[str, int]]) -> None:
    """Write the products, which lie one after another in the source; then close it."""
    at = 0
    for name, size in sizes:
        # new in any case: nothing that lies there already may take its place
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        end = at + size
        while at < end:
            at += os.write(fd, os.pread(source, min(1 << 20, end - at), at))
        os.close(fd)
    os.close(source)
