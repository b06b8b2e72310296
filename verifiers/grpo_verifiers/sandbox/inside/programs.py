"""Compilers and programs of other languages: files laid out in the scratch folder, then exec.

What a compiler made leaves through a memory file and is laid out again for each test, so no test finds what another left.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, NoReturn

FOLDER = "/tmp"
PRODUCTS_FD = 4
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": FOLDER, "TMPDIR": FOLDER, "LANG": "C.UTF-8"}


def run(payload: dict[str, Any], out: int) -> int:
    """Exec the program; with `keep` run it as a child and hand out the files it made."""
    program = payload["argv"][0]
    # for libraries beside the program: the loader finds its folder through /proc, which is not here, or by this name
    environment = {**ENVIRONMENT, "LD_ORIGIN_PATH": os.path.dirname(os.path.realpath(program))}
    os.chdir(FOLDER)
    for name, text in payload["files"].items():
        with open(name, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
    _lay_out(PRODUCTS_FD, payload["products"])
    if not payload["keep"]:
        _become(program, payload["argv"], environment)
    child = os.fork()
    if child == 0:
        # a compiler must not write the product's bytes itself
        os.close(out)
        _become(program, payload["argv"], environment)
    _, status = os.waitpid(child, 0)
    if status == 0:
        _hand_out(_made({*payload["files"], *(name for name, _ in payload["products"])}), out)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _become(program: str, argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by a program; where that cannot be, end as a shell does that does not find it."""
    try:
        os.execve(program, argv, environment)
    except OSError as err:
        os.write(2, f"{program}: {err.strerror}\n".encode())
    finally:
        os._exit(127)


def _made(given: set[str]) -> list[str]:
    """Files in the scratch folder that were not given, by their paths in it; hidden ones, such as caches, are left out."""
    found = []
    for folder, inner, names in os.walk("."):
        inner[:] = [name for name in inner if not name.startswith(".")]
        paths = [os.path.normpath(os.path.join(folder, name)) for name in names if not name.startswith(".")]
        found += [path for path in paths if path not in given and stat.S_ISREG(os.lstat(path).st_mode)]
    return sorted(found)


def _hand_out(names: list[str], out: int) -> None:
    """Write names and sizes as a line of JSON, then the files one after another."""
    os.write(out, json.dumps([(name, os.path.getsize(name)) for name in names]).encode() + b"\n")
    for name in names:
        with open(name, "rb") as file:
            while chunk := file.read(1 << 20):
                os.write(out, chunk)


def _lay_out(source: int, sizes: list[tuple[str, int]]) -> None:
    """Write the products, which lie one after another in the source; then close it."""
    at = 0
    for name, size in sizes:
        if "/" in name:
            os.makedirs(os.path.dirname(name), exist_ok=True)
        # new in any case: nothing that lies there already may take its place
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        end = at + size
        while at < end:
            at += os.write(fd, os.pread(source, min(1 << 20, end - at), at))
        os.close(fd)
    os.close(source)
