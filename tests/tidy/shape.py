"""How files look: their size, their names, what they may not leave behind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from pathlib import PurePosixPath

from tests.tidy.sources import Source, Violation, functions

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
EMPTY_NAMES = frozenset({"util", "utils", "helper", "helpers", "misc", "manager", "managers"})
PROMISE = re.compile(r"\b(TODO|FIXME|XXX)\b")
# Spelled so that this file does not match itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:wor[k]|farm)/|(?<![\w.])/(?:hom[e]|User[s])/\w+|(?<![\w.])/roo[t]/|/tmp/(?:lab|peer[s])\b|\.\./share[d]\b"
)


def check_file_length(source: Source) -> Iterator[Violation]:
    lines = len(source.lines)
    if lines > FILE_LINES_MAX:
        yield source.violation(1, f"{lines} lines, at most {FILE_LINES_MAX}: which second noun is hiding in here?")


def check_function_length(source: Source) -> Iterator[Violation]:
    for function in functions(source.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield source.violation(function, f"{function.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")


def check_module_name(source: Source) -> Iterator[Violation]:
    """A name that fits everything says nothing."""
    for part in PurePosixPath(source.path).with_suffix("").parts:
        empty = EMPTY_NAMES.intersection(part.lower().split("_"))
        if empty:
            yield source.violation(1, f"`{part}` says nothing about what is inside; no {', '.join(sorted(empty))}")


def check_exceptions(source: Source) -> Iterator[Violation]:
    """Errors are typed, and caught by their type."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and catches_all(node):
            yield source.violation(node, "a bare except (or BaseException without raise) swallows cancellation")
        elif isinstance(node, ast.Raise) and raised_name(node) in ("Exception", "BaseException"):
            yield source.violation(node, "raise a typed error from ottla.model.errors")


def catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    reraises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    return isinstance(handler.type, ast.Name) and handler.type.id == "BaseException" and not reraises


def raised_name(node: ast.Raise) -> str | None:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return raised.id if isinstance(raised, ast.Name) else None


def check_promises(source: Source) -> Iterator[Violation]:
    """What is left to do is an issue, not a comment."""
    for number, line in enumerate(source.lines, 1):
        promise = PROMISE.search(line)
        if promise:
            yield source.violation(number, f"{promise.group()}: finish it, or say it where people look")


def check_package_docstring(source: Source) -> Iterator[Violation]:
    """A folder says what lives there and what may not."""
    if source.path.endswith("__init__.py") and not ast.get_docstring(source.tree):
        yield source.violation(1, "a package says in its docstring what lives in it")


def check_machine_paths(path: str, text: str) -> Iterator[Violation]:
    """A path of somebody's machine means nothing on another."""
    for number, line in enumerate(text.splitlines(), 1):
        found = MACHINE_PATH.search(line)
        if found:
            yield Violation(path, number, f"{found.group()} is a path of one machine")


def check_mirror(test: str, modules: Set[str]) -> Iterator[Violation]:
    """tests/unit/log/test_segment.py, or test_segment_recovery.py, is about src/ottla/log/segment.py.

    A test of a whole package is named after it; `modules` holds every dotted name under src/.
    """
    path = PurePosixPath(test)
    if not path.name.startswith("test_"):
        return
    parts = path.relative_to("tests/unit").parent.parts
    package = ".".join(parts if parts[:1] == ("pyspark_ottla",) else ("ottla", *parts))
    if package not in modules:
        yield Violation(test, 1, f"there is no {package}: a unit test lies where its module lies")
        return
    subject = path.stem.removeprefix("test_")
    names = {name.rpartition(".")[2] for name in modules if name == package or name.rpartition(".")[0] == package}
    if not any(subject == name or subject.startswith(name + "_") for name in names):
        yield Violation(test, 1, f"named after no module of {package} (test_<module>.py or test_<module>_<aspect>.py)")
