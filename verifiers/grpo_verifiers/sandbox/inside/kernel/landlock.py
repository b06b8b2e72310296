"""Landlock: the only readable paths are the listed ones, and nothing is writable but one scratch folder.

It does not cover stat, chmod or access: the seccomp list has to. Rights newer than the kernel are left out, so the
result depends on the version of its interface; the self-test shows what holds.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from . import libc

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
READ_FILE, READ_DIR, WRITE_FILE = 1 << 2, 1 << 3, 1 << 1
RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many file rights the version knows
COVERS_TRUNCATE = 3  # before it, opening for reading with O_TRUNC empties any file of the user
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3
# REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, REFER (rename between folders), TRUNCATE; no links, devices, pipes, sockets
SCRATCH = READ_FILE | READ_DIR | WRITE_FILE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13 | 1 << 14


def version() -> int:
    """The interface version of this kernel; 0 where there is no Landlock."""
    try:
        return libc.syscall(CREATE_RULESET, ctypes.c_void_p(None), 0, 1)
    except OSError:
        return 0


def restrict(readable: Iterable[str], listed: Iterable[str], devices: Iterable[str], scratch: str = "") -> int:
    """Bind this process for good; returns the interface version. The caller has set no_new_privs.

    Raises:
        OSError: the kernel has no Landlock or refuses.
    """
    found = version()
    if found == 0:
        raise OSError("this kernel has no Landlock")
    # all rights that the kernel knows: what is not handled is allowed
    handled = (1 << RIGHTS_BY_VERSION.get(found, 16)) - 1
    fields = [handled]
    if found >= 4:
        fields.append(3)  # bind and connect of TCP
    if found >= 6:
        fields.append(SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    attr = ctypes.create_string_buffer(struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields))
    rules = libc.syscall(CREATE_RULESET, ctypes.byref(attr), len(attr), 0)
    try:
        for path in readable:
            _allow(rules, path, READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE)
        for path in listed:
            _allow(rules, path, READ_DIR)
        for path in devices:
            _allow(rules, path, READ_FILE | WRITE_FILE)
        if scratch and found >= COVERS_TRUNCATE:
            _allow(rules, scratch, SCRATCH)
        libc.syscall(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return found


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        # a rule is bound to the file, not to its path, which may be renamed later
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        beneath = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        libc.syscall(ADD_RULE, rules, 1, ctypes.byref(beneath), 0)
    finally:
        os.close(fd)
