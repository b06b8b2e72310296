"""What a lane may see of this machine's files: the interpreter, its standard library, shared libraries, a few packages.

Site-packages as a whole stays out of sight: data sets with their solutions are installed there.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata

SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
PROGRAMS = (
    *"""/bin /usr/bin /usr/include /usr/libexec /usr/local/bin /usr/local/lib/ocaml /etc/ocamlfind.conf /var/lib/coq
    /usr/share/coq /etc/alternatives /usr/share/nodejs /usr/share/perl /usr/local/lib/node_modules""".split(),  # noqa: SIM905
    *glob.glob("/usr/share/go-*"),
    *glob.glob("/etc/java-*"),
)
COMPANIONS = "ssl crypto sqlite3 ffi lzma bz2 z expat mpdec uuid stdc++ gcc_s python3*".split()  # noqa: SIM905
PACKAGES = ("numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers")


@dataclass(frozen=True, slots=True)
class HostView:
    """Paths to show, links to make, folders to show empty, the import path and the packages by name."""

    readable: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    search: tuple[str, ...]
    packages: tuple[tuple[str, str], ...]


@functools.cache
def host_view(packages: tuple[str, ...] = (), programs: tuple[str, ...] = ()) -> HostView:
    """The view for lanes of this interpreter, with these packages and what they need, or with these folders of programs."""
    stdlib = os.path.realpath(sysconfig.get_path("stdlib"))
    dynload = next((p for p in sys.path if p.endswith("lib-dynload")), os.path.join(stdlib, "lib-dynload"))
    readable, links = set[str](), list[tuple[str, str]]()
    for path in (*SYSTEM, *programs):
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
            readable.add(os.path.realpath(path))
        elif os.path.exists(path):
            readable.add(path)
            # a compiler that finds itself through /proc, of which this link is all there is
            links += (
                [("/proc/self/exe", path)]
                if path in programs and os.path.isfile(path) and os.access(path, os.X_OK)
                else []
            )
    readable |= {stdlib, os.path.realpath(dynload), *_libraries(), *_mapped_files()}
    found = package_places(packages)
    readable |= {place for _, place in found}
    readable |= {libs for _, place in found if os.path.isdir(libs := place + ".libs")}
    hidden = {
        folder
        for base in (stdlib, "/usr/lib/python3", "/usr/local/lib/python3")
        for name in ("site-packages", "dist-packages")
        if os.path.isdir(folder := os.path.join(base, name)) and not any(p.startswith(folder) for _, p in found)
    }
    # the longest path is bound last, so a folder inside a shown one is shown twice at no harm
    return HostView(tuple(sorted(readable)), tuple(links), tuple(sorted(hidden)), (stdlib, dynload), found)


def landlock_paths(view: HostView) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same paths for Landlock, which cannot leave out a folder inside an allowed one: it allows the siblings.

    The second part are the folders whose names may be listed though not all of them may be read; imports list them.
    """
    out: list[str] = []
    listed: list[str] = []
    for path in view.readable:
        inside = [h for h in view.hidden if h.startswith(path.rstrip("/") + "/")]
        if inside:
            listed.append(path)
        out += _around(path, inside) if inside else [path]
    return tuple(out), tuple(listed)


def _around(folder: str, hidden: list[str]) -> list[str]:
    out: list[str] = []
    for entry in os.scandir(folder):
        if entry.path in hidden:
            continue
        if any(h.startswith(entry.path + "/") for h in hidden):
            out += _around(entry.path, hidden)
        else:
            out.append(entry.path)
    return out


def _libraries() -> set[str]:
    """Shared libraries beside the interpreter that the standard library's extension modules load."""
    folder = os.path.join(os.path.realpath(sys.base_prefix), "lib")
    if folder in SYSTEM:
        return set()
    return {path for name in COMPANIONS for path in glob.glob(f"{folder}/lib{name}.so*") if os.path.isfile(path)}


def _mapped_files() -> set[str]:
    """The interpreter's own shared library, wherever it lies."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as file:
            paths = {line.split(None, 5)[5].strip() for line in file if "libpython" in line}
    except (OSError, IndexError):
        return set()
    return {p for p in paths if os.path.isfile(p)}


def package_places(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Where the installed ones of these packages and of what they need lie: (module, folder or file)."""
    places: dict[str, str] = {}
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = metadata.requires(name) or []
            tops = _top_modules(name)
        except metadata.PackageNotFoundError:
            continue
        for module in tops:
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.origin and os.path.exists(spec.origin):
                is_package = spec.submodule_search_locations is not None
                places[module] = os.path.dirname(spec.origin) if is_package else spec.origin
        waiting += [m[0] for need in needs if "extra ==" not in need and (m := re.match(r"[\w.-]+", need))]
    return tuple(sorted(places.items()))


def _top_modules(name: str) -> set[str]:
    text = metadata.distribution(name).read_text("top_level.txt")
    if text:
        return {line for line in text.split() if "/" not in line}
    files = metadata.files(name) or []
    tops = {f.parts[0] for f in files if f.suffix == ".py"}
    return {t.removesuffix(".py") for t in tops if t.removesuffix(".py").isidentifier()}
