"""Tries what a run must not be able to do, inside a real run, and says what happened: {item: "" (refused) or how it worked}."""

from __future__ import annotations

import _socket
import ctypes
import json
import os
from collections.abc import Callable
from typing import Any


def run(given: dict[str, Any], results: int) -> int:
    """Make every attempt and write what came of it, by name; an empty answer means that it was refused."""
    tries: dict[str, Callable[[], str]] = {
        "network": lambda: _open_socket(_socket.AF_INET),
        "unix sockets": lambda: _open_socket(_socket.AF_UNIX),
        "new processes": _fork,
        "run programs": _exec,
        "files outside": lambda: _read(given["canary"]),
        "home folder": lambda: _read_folder(given["home"], given["home_names"]),
        "process list": lambda: _read_folder("/proc"),
        "write outside": lambda: _write(given["outside"]),
        "signal others": lambda: _signal(os.getppid()),
        "trace others": _trace,
        "environment": lambda: _environment(given["variable"], given["host_pid"]),
        "privileges": _privileges,
        "memory over the limit": lambda: _memory(given["memory_mb"]),
        "mount": _mount,
    }
    out = {}
    for name, attempt in tries.items():
        try:
            out[name] = attempt()
        except (OSError, MemoryError):
            out[name] = ""
    out["scratch files"] = _scratch()
    out["own uid"] = str(os.getuid())
    os.write(results, json.dumps(out).encode() + b"\n")
    return 0


def _open_socket(family: int) -> str:
    _socket.socket(family, _socket.SOCK_STREAM).close()
    return "made a socket"


def _fork() -> str:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return "forked"


def _exec() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    empty = (ctypes.c_char_p * 1)(None)
    libc.execve(b"/nonexistent", empty, empty)
    # a refusal by the filter is EPERM; ENOENT means that the call itself was let through
    return "" if ctypes.get_errno() == 1 else "exec is open"


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return "read it" if file.read(1) else ""


def _read_folder(path: str, names: list[str] | None = None) -> str:
    """Listing counts; with `names` only if one of them is seen, since the way to the interpreter may lead through it."""
    seen = os.listdir(path)
    return "listed it" if (seen if names is None else set(seen) & set(names)) else ""


def _write(path: str) -> str:
    with open(path, "w", encoding="utf-8") as file:
        file.write("x")
    return "wrote it"


def _signal(pid: int) -> str:
    os.kill(pid if pid > 0 else 1, 0)
    return "sent a signal"


def _trace() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return "traced" if libc.ptrace(16, ctypes.c_long(os.getppid()), None, None) == 0 else ""


def _environment(variable: str, host_pid: int) -> str:
    if variable in os.environ:
        return "a variable of the host"
    with open(f"/proc/{host_pid}/environ", "rb") as file:
        return "read it from /proc" if file.read(1) else ""


def _privileges() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setresuid(0, 0, 0) == 0 and os.getuid() == 0 and os.geteuid() != 0:
        return "became root"
    buffer = ctypes.create_string_buffer(24)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capget(ctypes.byref(header), buffer)
    return "holds capabilities" if any(buffer.raw) else ""


def _memory(limit_mb: int) -> str:
    held = bytearray((limit_mb + 64) << 20)
    return "got it" if held else ""


def _mount() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return "mounted" if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 else ""


def _scratch() -> str:
    try:
        with open("probe", "w", encoding="utf-8") as file:
            file.write("x")
        os.unlink("probe")
    except OSError:
        return ""
    return "writable"
