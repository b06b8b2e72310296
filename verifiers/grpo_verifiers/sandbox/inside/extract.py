"""Which part of an answer is the program. Runs inside the sandbox: parsing hostile text can take an interpreter down."""

from __future__ import annotations

import ast
import builtins
import inspect
import opcode
import textwrap
import types

from .fences import blocks, python_blocks

NOTHING = compile("", "<nothing>", "exec").co_code
IDLE = {opcode.opmap.get(n) for n in ("CACHE", "RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST")}
LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


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


def shows(code: types.CodeType, entry: str | None) -> bool:
    """Whether the code by itself shows that its source `suits`; where it does not, only the tree can tell.

    A tree costs a short run more than all else that is done for it.
    """
    if not entry:
        return len(code.co_code) > len(NOTHING)
    return bool(_inner(code, entry.split(".")[0]) or _inner(code, "Solution"))


def _inner(code: types.CodeType, name: str) -> list[types.CodeType]:
    """The functions and classes of this name that are defined at the top."""
    return [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name]


def suited(source: str, entry: str | None) -> types.CodeType | None:
    """The code of a source that is a program for this entry point."""
    code = compiled(source)
    if code is None or shows(code, entry):
        return code
    tree = parse(source)
    return code if tree is not None and suits(tree, entry) else None


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
    whole = suited(text, entry)
    if whole is not None:
        return whole
    candidates = python_blocks(text)
    if not candidates and not blocks(text):
        candidates = [text, textwrap.dedent(text)]
    if candidates and (not entry or len(candidates) == 1):  # the last one needs no parts of others
        last = suited(candidates[-1], entry)
        if last is not None:
            return last
    trees = [parse(source) or parse(_without_prompts(source)) for source in candidates]
    for at in reversed(range(len(trees))):
        tree = trees[at]
        if tree is not None and suits(tree, entry):
            if not entry:
                return compiled(tree)
            tree = _with_parts(tree, [t for t in trees[:at] if t is not None])
            return compiled(_with_later(tree, [t for t in trees[at + 1 :] if t is not None]))
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


def _with_later(tree: ast.Module, after: list[ast.Module]) -> ast.Module:
    """The program with what later blocks define beside it: functions and classes of other names, and what these read there.

    A later block may be a use or a test of the program: no other statement of it is taken, and a definition that fails by
    itself (a package that is not here) takes nothing from the program.
    """
    body, known = list(tree.body), _bound(tree.body)
    for block in after:
        made: list[ast.stmt] = [
            n
            for n in block.body
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and n.name not in known
        ]
        wanted = _read(made) - known
        more: list[ast.stmt] = [
            n
            for n in block.body
            if isinstance(n, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
            and _bound([n]) & wanted
            and not _bound([n]) & known
        ]
        for node in block.body:
            if node in made or node in more:
                failed = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
                body.append(ast.Try([node], [failed], [], []))
        known |= _bound(made) | _bound(more)
    return ast.fix_missing_locations(ast.Module(body, [])) if len(body) > len(tree.body) else tree


def _bound(nodes: list[ast.stmt]) -> set[str]:
    """The names that statements bind at the top."""
    names = set[str]()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def _read(nodes: list[ast.stmt]) -> set[str]:
    return {n.id for s in nodes for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _under_stub(prompt_code: str, body: str, entry: str) -> types.CodeType | None:
    """The prompt with a completion of its last function; the body may have lost the indent of its first line or of all."""
    stub = prompt_code.rstrip() + "\n"
    stripped = body.strip("\n")
    for attempt in (stripped, "    " + stripped.lstrip(), textwrap.indent(textwrap.dedent(stripped), "    ")):
        if not attempt[:1].isspace():
            continue
        source = stub + attempt + "\n"
        code = compiled(source)
        if code is not None and (does_something(code, entry) or _is_finished(source, entry)):
            return code
    return None


def does_something(code: types.CodeType, entry: str) -> bool:
    """Whether the code shows that the entry point is defined, and has a body of its own."""
    found = _inner(code, entry)
    return bool(found) and not any(c.co_flags & LATER or IDLE.issuperset(c.co_code[::2]) for c in found)


def _is_finished(source: str, entry: str) -> bool:
    tree = parse(source)
    return tree is not None and defines(tree, entry) and not is_stub(tree, entry)


def compiled(program: ast.Module | str) -> types.CodeType | None:
    """The code of a source or tree; None for what is no program, as a `return` outside a function."""
    try:
        return compile(program, "<solution>", "exec", dont_inherit=True)
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
