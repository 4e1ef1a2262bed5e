"""Source files as the rules see them: parsed once, with every imported name known by its full one."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, at a place that an editor can jump to."""

    path: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module or name, in full: `from a.b import c` is `a.b.c`."""

    name: str
    line: int
    types_only: bool
    """Stands under `if TYPE_CHECKING:`, so it costs nothing at run time."""


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file. `module` is its dotted name, `path` is relative to the repository."""

    path: str
    module: str
    text: str
    tree: ast.Module = field(repr=False)

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        return cls(path=path, module=module_name(path), text=text, tree=ast.parse(text, path))

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def violation(self, node: ast.AST | int, rule: str) -> Violation:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return Violation(self.path, line, rule)


def module_name(path: str) -> str:
    """`src/ottla/log/segment.py` is `ottla.log.segment`; a package is named without its `__init__`."""
    parts = Path(path).with_suffix("").parts
    if parts[0] == "src":
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def shipped_sources() -> tuple[Source, ...]:
    """Every module under src/."""
    return tuple(
        Source.parse(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in sorted(SRC.rglob("*.py"))
    )


def under(source: Source, *prefixes: str) -> bool:
    """Is the module one of these, or inside one of these packages?"""
    return any(source.module == prefix or source.module.startswith(prefix + ".") for prefix in prefixes)


def imports(source: Source) -> Iterator[Import]:
    """Every import of a file, those inside functions too."""
    types_only = {id(node) for block in type_checking_blocks(source.tree) for node in ast.walk(block)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in types_only)
        elif isinstance(node, ast.ImportFrom):
            base = import_base(source, node)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, id(node) in types_only)


def import_base(source: Source, node: ast.ImportFrom) -> str:
    """The module after `from`, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    above = node.level - (1 if source.path.endswith("__init__.py") else 0)
    base = package[: len(package) - above]
    return ".".join([*base, node.module] if node.module else base)


def type_checking_blocks(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from node.body


def full_names(source: Source) -> dict[str, str]:
    """Local name to full name, for everything that the file imports."""
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            base = import_base(source, node)
            for alias in node.names:
                names[alias.asname or alias.name] = f"{base}.{alias.name}"
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """The full name behind `a.b.c`, or None where it begins with neither an imported nor a built-in name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id if hasattr(builtins, node.id) else None)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, names)
        return f"{base}.{node.attr}" if base else None
    return None


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def report(violations: list[Violation]) -> str:
    """What a failing test prints."""
    return "\n".join(["", *map(str, sorted(violations, key=lambda found: (found.path, found.line)))])
