"""The code of a build step: digests of the modules that its child process runs."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

import servegrid

PACKAGE = servegrid.__name__
ROOT = Path(servegrid.__file__).parent.parent
"""The folder of the package: child processes in other environments and images import it from here, too."""


@functools.cache
def code_digests(*modules: str, root: Path = ROOT) -> dict[str, str]:
    """Module -> digest, for these modules and all modules of the project that they import, directly or not.

    The digest is that of the syntax tree without docstrings, so comments, docstrings and layout do not count.
    Python's minor version does, because its trees differ. Imports within functions count; those for type
    checkers do not. An `__init__` counts only where a name is imported from it. A module that is loaded by a
    name in a string is not found: the stage adds it. Read once a process.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        path = _path(module, root)
        if path is None:
            raise ModuleNotFoundError(f"no module {module} below {root}")
        tree = _Reduced().visit(ast.parse(path.read_bytes()))
        found[module] = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        waiting += _imports(tree, package, root)
    return dict(sorted(found.items()))


class _Reduced(ast.NodeTransformer):
    """A tree without docstrings, other bare strings, and blocks for type checkers."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(statement) for statement in node.orelse]
        return self.generic_visit(node)


def _imports(tree: ast.AST, package: str, root: Path) -> Iterator[str]:
    """The project's modules that a module of `package` imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(f"{PACKAGE}."))
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base.partition(".")[0] == PACKAGE:
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield inner if _path(inner, root) else base


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    base = ".".join(parents[: len(parents) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def _path(module: str, root: Path) -> Path | None:
    place = root.joinpath(*module.split("."))
    candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)
