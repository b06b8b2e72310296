"""Which part of an answer is the program. Runs inside the sandbox: parsing hostile text can take an interpreter down."""

from __future__ import annotations

import ast
import builtins
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINE = 500
PYTHON_TAGS = ("python", "py", "python3", "py3", "python2", "ipython", "pycon")


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A fenced block: its tag in lower case and its text, dedented by the fence's own indent."""

    tag: str
    text: str


def blocks(text: str) -> list[FencedBlock]:
    """The fenced blocks in order; one that is never closed reaches to the end."""
    return list(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[FencedBlock]:
    fence, tag, indent, inside = "", "", 0, list[str]()
    for line in lines:
        marks, info = _fence(line)
        if not fence:
            if marks:
                fence, tag, inside = marks, _tag(info), []
                indent = len(line) - len(line.lstrip())
        elif marks[:1] == fence[0] and len(marks) >= len(fence) and not info:
            yield FencedBlock(tag, _dedent(inside, indent))
            fence = ""
        else:
            inside.append(line)
    if fence:
        yield FencedBlock(tag, _dedent(inside, indent))


def _fence(line: str) -> tuple[str, str]:
    """The marks of a fence line and what follows them; two empty texts for any other line. Takes time linear in the line."""
    text = line.strip()
    inline = text.rfind("```") if len(text) < MOST_LINE and text[:1] not in ("`", "~", "") else -1
    if inline > 0 and text[inline - 1].isspace() and text[inline + 3 :].lower() in PYTHON_TAGS:
        text = text[inline:]  # `Answer: ```python`
    mark = text[:1]
    if mark not in ("`", "~") or not text.startswith(mark * 3):
        return "", ""
    info = text.lstrip(mark)
    return ("", "") if "`" in info else (text[: len(text) - len(info)], info.strip())


def _tag(info: str) -> str:
    """The language of a fence: `python`, `Python 3`, `{.python}`, `python:main.py`, `python title="x"`."""
    for sign in "{}.:,=":
        info = info.replace(sign, " ")
    words = info.lower().split()
    return words[0] if words else ""


def _dedent(lines: list[str], indent: int) -> str:
    if indent:
        lines = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
    return "\n".join(lines) + "\n"


def python_blocks(text: str) -> list[str]:
    """The blocks that can hold the program: those tagged as Python, else the untagged ones."""
    found = blocks(text)
    tagged = [b.text for b in found if b.tag in PYTHON_TAGS]
    return tagged or [b.text for b in found if not b.tag]


def parse(source: str) -> ast.Module | None:
    """The tree, or None for what is no Python."""
    try:
        return ast.parse(source, "<solution>")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def defines(tree: ast.Module, name: str) -> bool:
    """Whether the module binds the name at its top level (also inside if, try, with and loops there)."""
    name = name.split(".")[0]
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name == name:
                return True
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any((a.asname or a.name) == name for a in node.names):
                return True
        elif isinstance(node, ast.Name):
            if node.id == name and isinstance(node.ctx, ast.Store):
                return True
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def suits(tree: ast.Module, entry: str | None) -> bool:
    """Whether a tree is a program for this entry point; `class Solution` may hold it as a method."""
    return bool(tree.body) if not entry else defines(tree, entry) or defines(tree, "Solution")


def program(text: str, entry: str | None, prompt_code: str) -> types.CodeType | None:
    """The program of an answer (the thinking is off, line ends are plain), None if there is none.

    Without an entry point any block that parses will do.
    """
    if not text.strip():
        return None
    if entry and prompt_code and text.lstrip("\n")[:1] in (" ", "\t") and f"def {entry}" not in text:
        code = _under_stub(prompt_code, text, entry)
        if code is not None:
            return code
    whole = parse(text)
    if whole is not None and suits(whole, entry):
        return compiled(whole)
    candidates = python_blocks(text)
    if not candidates and not blocks(text):
        candidates = [text, textwrap.dedent(text)]
    trees = [parse(source) or parse(_without_prompts(source)) for source in candidates]
    for at in reversed(range(len(trees))):
        tree = trees[at]
        if tree is not None and suits(tree, entry):
            return compiled(_with_parts(tree, [t for t in trees[:at] if t is not None]) if entry else tree)
    if entry and prompt_code:
        for source in reversed(candidates):
            code = _under_stub(prompt_code, source, entry)
            if code is not None:
                return code
    return None


def _without_prompts(source: str) -> str:
    """A session of the interpreter as a program: what follows `>>> ` and `... `."""
    lines = source.split("\n")
    if not any(line.lstrip().startswith(">>>") for line in lines):
        return source
    said = [line.lstrip() for line in lines]
    return "\n".join(line[4:] for line in said if line.startswith((">>> ", "... "))) + "\n"


def _with_parts(tree: ast.Module, before: list[ast.Module]) -> ast.Module:
    """The program with what earlier blocks give it: their imports, constants and helpers that it uses and does not have."""
    parts: list[ast.stmt] = []
    known = _bound(tree.body)
    wanted = _read(tree.body) - known - set(dir(builtins))
    for block in reversed(before):
        if not wanted:
            break
        given = [n for n in block.body if _bound([n]) & wanted]
        while True:
            more = _read(given) - set(dir(builtins))
            wider = [n for n in block.body if n in given or _bound([n]) & more]
            if len(wider) == len(given):
                break
            given = wider
        parts = given + parts
        wanted = (wanted | _read(given)) - _bound(given) - known - set(dir(builtins))
    return ast.Module([*parts, *tree.body], []) if parts else tree


def _bound(nodes: list[ast.stmt]) -> set[str]:
    """The names that statements bind at the top."""
    names = set[str]()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        else:
            names |= {
                n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return names


def _read(nodes: list[ast.stmt]) -> set[str]:
    return {
        n.id for s in nodes for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }


def _under_stub(prompt_code: str, body: str, entry: str) -> types.CodeType | None:
    """The prompt with a completion of its last function; the body may have lost the indent of its first line or of all."""
    stub = prompt_code.rstrip() + "\n"
    stripped = body.strip("\n")
    attempts = [stripped, "    " + stripped.lstrip(), textwrap.indent(textwrap.dedent(stripped), "    ")]
    for attempt in attempts:
        if not attempt[:1].isspace():
            continue
        tree = parse(stub + attempt + "\n")
        if tree is not None and defines(tree, entry) and not is_stub(tree, entry):
            code = compiled(tree)
            if code is not None:
                return code
    return None


def compiled(tree: ast.Module) -> types.CodeType | None:
    """The code of a tree; None for what parses and yet is no program, as a `return` outside a function."""
    try:
        return compile(tree, "<solution>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def is_stub(tree: ast.Module, entry: str) -> bool:
    """Whether the entry point's last definition has no body of its own."""
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry:
            return all(_says_nothing(n) for n in node.body)
    return False


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def preamble(prompt_code: str, entry: str | None) -> ast.Module:
    """What the prompt gives besides the function to write: imports, constants, helpers that are fully defined."""
    tree = parse(prompt_code) or parse(prompt_code.rstrip() + "\n    pass\n")
    return ast.Module([node for node in tree.body if not _is_task(node, entry)] if tree else [], [])


def _is_task(node: ast.stmt, entry: str | None) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == entry or all(_says_nothing(n) for n in node.body)
    if isinstance(node, ast.ClassDef):
        return node.name in (entry, "Solution")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
