"""The code in figures: `python -m tests.architecture.figures [ROOT] [--sum | --missing]`.

Lines, files, functions, comments and documented functions of the two packages. Lines are all lines, docstrings and blank ones
too; functions are methods and nested ones too. A public function is one without a leading underscore, of a
module or of a class without one. It says shapes where its docstring, or the names of its parameters, carry the suffixes of
CONTRIBUTING's table (`logps_BT`), a pair of brackets of axes (`[B, T]`), or the word scalar.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.source import ROOT

PACKAGES = ("grpo_cli", "verifiers/grpo_verifiers")
TENSOR = re.compile(r"\bTensor\b")
AXIS = r"(?:[PGBTSVHDNCK]|\.\.\.|…|\d+|batch|(?:new )?tokens|rows|places|targets|prompts|samples|sequences|(?:\w+ )?heads|columns|(?:\w+ )?width|n|numbers)"
SIZE = rf"{AXIS}(?: ?[x+/] ?{AXIS}| or {AXIS}| of \w+ \w+)*"
SHAPE = re.compile(
    rf"\b\w+_[PGBTSVHDNCK1-9]+\b|\[{SIZE}(?:, ?{SIZE})*\]|\({SIZE},(?: ?{SIZE},?)*\)|\bscalars?\b|\bshapes?\b", re.ASCII
)
SUFFIX = re.compile(r"_[PGBTSVHDNCK1-9]+$")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    file: Path
    name: str
    node: Function

    def __str__(self) -> str:
        return f"{self.file}:{self.node.lineno} {self.name}"


def public_functions(root: Path) -> Iterator[Place]:
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, Function) and not node.name.startswith("_"):
                    yield Place(file.relative_to(root), node.name, node)
                elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    for inner in node.body:
                        if isinstance(inner, Function) and not inner.name.startswith("_"):
                            yield Place(file.relative_to(root), f"{node.name}.{inner.name}", inner)


def parameters(node: Function) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def has_tensor(node: Function) -> bool:
    written = [a.annotation for a in parameters(node)] + [node.returns]
    return any(TENSOR.search(ast.unparse(each)) for each in written if each is not None)


def says_shapes(node: Function) -> bool:
    text = ast.get_docstring(node) or ""
    return bool(SHAPE.search(text)) or any(
        SUFFIX.search(name) for name in [node.name, *(a.arg for a in parameters(node))]
    )


def raised(node: Function) -> set[str]:
    """Names of what the function itself raises (not what it calls, and not a bare `raise`)."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Raise) and each.exc is not None:
            what = each.exc.func if isinstance(each.exc, ast.Call) else each.exc
            found.add(ast.unparse(what).split(".")[-1])
    return {name for name in found if name[:1].isupper()}


def says_errors(node: Function) -> bool:
    text = ast.get_docstring(node) or ""
    return "raise" in text.lower() or any(name in text for name in raised(node))


def comments(root: Path) -> dict[str, tuple[int, int]]:
    """Of each room: lines that carry a comment, and lines of code (blank lines, comments and docstrings are none)."""
    rooms: dict[str, tuple[int, int]] = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            said, code, text = set(), set(), file.read_text()
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    if not re.match(r"#\s*(type: ignore|noqa|pragma|fmt:|!)", token.string):
                        said.add(token.start[0])
                elif token.type not in (
                    tokenize.NL,
                    tokenize.NEWLINE,
                    tokenize.INDENT,
                    tokenize.DEDENT,
                    tokenize.ENDMARKER,
                ):
                    code.update(range(token.start[0], token.end[0] + 1))
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Expr)
                    and isinstance(node.value, ast.Constant)
                    and isinstance(node.value.value, str)
                ):
                    code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            room = "/".join(file.relative_to(root / package).parts[:-1][:2]) or "(top)"
            a, b = rooms.get(f"{Path(package).name}/{room}", (0, 0))
            rooms[f"{Path(package).name}/{room}"] = a + len(said), b + len(code)
    return rooms


class Sizes(NamedTuple):
    """Sums over both packages."""

    lines: int
    files: int
    functions: int
    used_once: int
    """Functions with one definition and one use in the source."""
    imported_once: int
    """Modules that one other module imports."""

    def __str__(self) -> str:
        return (
            f"source: {self.lines:,} lines in {self.files} files, {100 * self.functions / self.lines:.2f} functions per 100"
            f" lines; {self.used_once} functions are used once, {self.imported_once} modules imported once"
        )


def sizes(root: Path) -> Sizes:
    """The sums of a checkout; what `grpo init` copies is no source."""
    lines = files = 0
    uses: Counter[str] = Counter()
    defined: Counter[str] = Counter()
    importers: dict[str, set[Path]] = defaultdict(set)
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if "starters" in file.parts and file.name != "__init__.py":
                continue
            text = file.read_text()
            lines, files = lines + len(text.splitlines()), files + 1
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, Function):
                    defined[node.name] += 1
                elif isinstance(node, ast.Name):
                    uses[node.id] += 1
                elif isinstance(node, ast.Attribute):
                    uses[node.attr] += 1
                elif isinstance(node, ast.ImportFrom) and node.module:
                    for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                        importers[name].add(file)
    once = [name for name, n in defined.items() if n == 1 == uses[name] and not name.startswith("__")]
    modules = {
        ".".join(file.relative_to(root / package).with_suffix("").parts): Path(package).name
        for package in PACKAGES
        for file in (root / package).rglob("*.py")
        if file.name != "__init__.py"
    }
    lone = [name for name, package in modules.items() if len(importers[f"{package}.{name}"]) == 1]
    return Sizes(lines, files, sum(defined.values()), len(once), len(lone))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("root", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--missing", action="store_true", help="name what says nothing")
    parser.add_argument("--sum", action="store_true", help="the sums only")
    options = parser.parse_args()
    print(sizes(options.root))
    if options.sum:
        return
    places = list(public_functions(options.root))
    tensors = [p for p in places if has_tensor(p.node)]
    # a command's docstring is its help page, and what it raises is printed as one line
    raising = [p for p in places if raised(p.node) and "commands" not in p.file.parts]
    rooms = comments(options.root)
    for room, (said, code) in sorted(rooms.items()):
        print(f"{room:44} {code:6} lines of code {100 * said / max(code, 1):6.1f} comments per 100")
    said, code = (sum(column) for column in zip(*rooms.values(), strict=True))
    print(f"lines of code {code}, comments per 100 {100 * said / code:.2f}")
    print(f"public functions {len(places)}, documented {sum(ast.get_docstring(p.node) is not None for p in places)}")
    print(f"tensor functions {len(tensors)}, with shapes {sum(says_shapes(p.node) for p in tensors)}")
    print(f"functions that raise {len(raising)}, that say so {sum(says_errors(p.node) for p in raising)}")
    if options.missing:
        for title, missing in (
            ("no shapes", [p for p in tensors if not says_shapes(p.node)]),
            ("no errors", [p for p in raising if not says_errors(p.node)]),
        ):
            print(f"\n{title}")
            for place in missing:
                print(f"  {place}  {sorted(raised(place.node)) if title == 'no errors' else ''}")


if __name__ == "__main__":
    main()
