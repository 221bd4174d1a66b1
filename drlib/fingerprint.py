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

NEUTRAL = frozenset({"drlib.errors"})
"""Modules that only word messages: they cannot change a result."""

Symbol = tuple[str, str]


class _Module:
    """A module's top-level symbols and imports, read from its source without importing it."""

    def __init__(self, name: str) -> None:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin:
            raise ModuleNotFoundError(name)
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        self.symbols: dict[str, ast.stmt] = {}
        for node in tree.body:
            for symbol in _defined(node):
                self.symbols[symbol] = node
        self.imports = dict(_imports(tree.body))


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _imports(nodes: list[ast.stmt]) -> Iterator[tuple[str, Symbol]]:
    """Yield (local name, (module, symbol)); the symbol is empty for a whole module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.split(".")[0],
                    (alias.name if alias.asname else alias.name.split(".")[0], ""),
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)


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
    tree = _without_docstrings(_module(module).symbols[symbol])
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _resolve(module: str, symbol: str, packages: tuple[str, ...]) -> Iterator[Symbol]:
    """Yield the symbols that ``from module import symbol`` refers to, if they belong to ``packages``."""
    if module.split(".")[0] not in packages or module in NEUTRAL:
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
        yield from _resolve(*_module(module).imports[symbol], packages)


def _references(module: str, symbol: str, packages: tuple[str, ...]) -> Iterator[Symbol]:
    source = _module(module)
    node = source.symbols[symbol]
    local = dict(_imports([child for child in ast.walk(node) if isinstance(child, ast.stmt)]))
    imports = {**source.imports, **local}
    attributes = {
        child.value: child.attr
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name)
    }
    for child in ast.walk(node):
        if not isinstance(child, ast.Name):
            continue
        if child.id in imports:
            target, name = imports[child.id]
            if name and _is_module(f"{target}.{name}") and child in attributes:
                target, name = f"{target}.{name}", attributes[child]
            elif not name and child in attributes:
                name = attributes[child]
            yield from _resolve(target, name, packages)
        elif child.id in source.symbols:
            yield module, child.id


def fingerprint(*functions: Callable | type) -> dict[str, str]:
    """Map each symbol in the import closure of ``functions`` to the hash of its syntax tree.

    Only symbols of ``drlib`` and of the functions' own packages count; libraries are provenance.
    """
    packages = tuple({"drlib", *(function.__module__.split(".")[0] for function in functions)})
    waiting = [(function.__module__, function.__qualname__.split(".")[0]) for function in functions]
    seen: dict[str, str] = {}
    while waiting:
        module, symbol = waiting.pop()
        name = f"{module}.{symbol}"
        if name in seen:
            continue
        seen[name] = _digest(module, symbol)
        waiting.extend(_references(module, symbol, packages))
    return dict(sorted(seen.items()))


def code_hash(symbols: dict[str, str]) -> str:
    """One hash for a fingerprint."""
    return hashlib.sha256(repr(sorted(symbols.items())).encode()).hexdigest()[:16]
