"""The fingerprint of code: which functions made a result, whatever their comments say.

``fingerprint(function)`` follows the names a function uses through the package, at the granularity of
top-level functions, classes and constants, and hashes each one's syntax tree without comments,
docstrings and positions. So a reworded comment changes nothing, a changed step size in a helper three
calls away does, and ``drlib explain`` can name the function that differs.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

NEUTRAL = frozenset(
    {
        "drlib.errors",
        "drlib.attacks",
        "drlib.apart",
        "drlib.guard",
        "drlib.landlock",
        "drlib.box",
        "drlib.pool",
    }
)
"""Modules that word messages, look attacks up by name or only stand between processes: they cannot change
a result."""

Symbol = tuple[str, str]


class _Module:
    """A module's top-level symbols and imports, read from its source without importing it.

    A symbol is all statements that define or change it: several assignments, ``X += 1``, ``TABLE["a"] = f``,
    also inside a top-level ``if``, ``try``, ``with`` or loop.
    """

    def __init__(self, name: str) -> None:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin:
            raise ModuleNotFoundError(name)
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        statements = list(_top_level(tree.body))
        self.symbols: dict[str, list[ast.stmt]] = {}
        for node in statements:
            for symbol in _defined(node):
                self.symbols.setdefault(symbol, []).append(node)
        self.package = package
        self.imports = dict(_imports(statements, package))


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those in its top-level blocks included."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for inner in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        targets = node.targets
    else:
        targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
    return [_base(part) for target in targets for part in _parts(target) if _base(part)]


def _parts(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for item in target.elts for part in _parts(item)]
    return [target]


def _base(target: ast.expr) -> str:
    """The name that an assignment changes: ``TABLE`` for ``TABLE["a"] = f`` and ``TABLE.x = 1``."""
    while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _imports(nodes: list[ast.stmt], package: str) -> Iterator[tuple[str, Symbol]]:
    """Yield (local name, (module, symbol)); the symbol is empty for a whole module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, (alias.name, "")) if alias.asname else (top, (top, ""))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parents = package.split(".")
                above = ".".join(parents[: len(parents) - node.level + 1])
                module = f"{above}.{module}" if module else above
            for alias in node.names:
                yield alias.asname or alias.name, (module, alias.name)


@cache
def _module(name: str) -> _Module:
    return _Module(name)


def _without_docstrings(node: ast.AST) -> ast.AST:
    for child in ast.walk(node):
        documented = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if documented and ast.get_docstring(child, clean=False) is not None:
            child.body = child.body[1:] or [ast.Pass()]
    return node


@cache
def _digest(module: str, symbol: str) -> str:
    text = repr([_canonical(_without_docstrings(node)) for node in _module(module).symbols[symbol]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(node: object) -> object:
    """A syntax tree as nested lists: without positions and empty fields, which differ between Pythons."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields if name not in ("ctx", "kind"))
        return [
            type(node).__name__,
            *([name, _canonical(value)] for name, value in fields if value not in (None, [])),
        ]
    if isinstance(node, list):
        return [_canonical(item) for item in node]
    return repr(node)


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


@cache
def _folder(module: str) -> str:
    """The folder that a module's top-level package or file lies in; empty if it cannot be told."""
    try:
        spec = importlib.util.find_spec(module.split(".")[0])
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.has_location or not spec.origin:
        return ""  # built into the interpreter
    path = Path(spec.origin).resolve()
    folder = path.parents[1] if path.name == "__init__.py" else path.parent
    installed = folder.name in ("site-packages", "dist-packages")
    return f"{folder}/{module.split('.')[0]}" if installed else str(folder)


def _resolve(module: str, symbol: str, folders: tuple[str, ...]) -> Iterator[Symbol]:
    """Yield the symbols that ``from module import symbol`` refers to, if they lie in ``folders``."""
    if _folder(module) not in folders or not _folder(module) or module in NEUTRAL:
        return
    if symbol and _is_module(f"{module}.{symbol}"):
        module, symbol = f"{module}.{symbol}", ""
    if module in NEUTRAL:
        return
    if not symbol:
        yield from ((module, name) for name in _module(module).symbols)
    elif symbol in _module(module).symbols:
        yield module, symbol
    elif symbol in _module(module).imports:  # re-exported by a package's __init__
        yield from _resolve(*_module(module).imports[symbol], folders)


@cache
def _names(module: str, symbol: str) -> tuple[tuple[str, str, str], ...]:
    """What a symbol's statements name, imported or not: (module, symbol, attribute that is taken of it)."""
    source = _module(module)
    children = [child for node in source.symbols[symbol] for child in ast.walk(node)]
    local = dict(_imports([child for child in children if isinstance(child, ast.stmt)], source.package))
    imports = {**source.imports, **local}
    attributes = {
        child.value: child.attr
        for child in children
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name)
    }
    found = {}
    for child in children:
        if isinstance(child, ast.Name) and child.id in imports:
            found[(*imports[child.id], attributes.get(child, ""))] = None
        elif isinstance(child, ast.Name) and child.id in source.symbols:
            found[module, child.id, ""] = None
    return tuple(found)


def _references(module: str, symbol: str, folders: tuple[str, ...]) -> Iterator[Symbol]:
    for target, name, attribute in _names(module, symbol):
        if target == module and name in _module(module).symbols:
            yield module, name
        elif (
            _folder(target) in folders
        ):  # to look into a library's package would import it, which takes seconds
            if name and attribute and _is_module(f"{target}.{name}"):
                target, name = f"{target}.{name}", attribute
            yield from _resolve(target, name or attribute, folders)


def fingerprint(*functions: Callable | type) -> dict[str, str]:
    """Map each symbol in the import closure of ``functions`` to the hash of its syntax tree.

    Only code that lies beside ``drlib`` or beside one of the functions' modules counts; libraries are
    provenance. What is reached through a registry that decorators fill is not seen.
    """
    folders = tuple({_folder("drlib"), *(_folder(function.__module__) for function in functions)})
    waiting = [(function.__module__, function.__qualname__.split(".")[0]) for function in functions]
    seen: dict[str, str] = {}
    while waiting:
        module, symbol = waiting.pop()
        name = f"{module}.{symbol}"
        if name in seen:
            continue
        seen[name] = _digest(module, symbol)
        waiting.extend(_references(module, symbol, folders))
    return dict(sorted(seen.items()))


def code_hash(symbols: dict[str, str]) -> str:
    """One hash for a fingerprint."""
    return hashlib.sha256(repr(sorted(symbols.items())).encode()).hexdigest()[:16]
