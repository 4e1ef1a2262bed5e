"""Order that a replay cannot repeat: that of a set, which hashes of strings and addresses of objects give.

What a set is is guessed from the file alone: displays, `set()`, operators between keys, and names and attributes that
are annotated as sets. A set that another file has made is not seen. Sets of int are the same in every process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.sources import FunctionNode, Source, Violation, functions, under

REPLAYED = (
    "ottla.api",
    "ottla.broker",
    "ottla.broker_parts",
    "ottla.core",
    "ottla.log",
    "ottla.model",
    "ottla.runtime",
    "ottla.server",
    "simulator",
)
WITH_SOCKETS = ("ottla.server.http", "ottla.server.idle", "ottla.server.listener", "ottla.server.topic_families")
"""Nothing simulated runs in these."""

MAKERS = frozenset({"set", "frozenset"})
COMBINERS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
OPERATORS = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
BLIND = MAKERS | COMBINERS | {"any", "all", "sum", "len", "min", "max", "sorted", "update", "difference_update"}
"""Calls to which the order of what they are given is all one; not where a `key` may find two equal."""
ORDERING = frozenset({"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "fromkeys", "join", "extend"})


class Sets:
    """What is known to be a set in one function, or outside of all."""

    def __init__(self, tree: ast.AST, attributes: frozenset[str] = frozenset()) -> None:
        self.attributes = attributes
        self.names: frozenset[str] = frozenset()
        self.names = frozenset(self._found(tree))

    def _found(self, tree: ast.AST) -> Iterator[str]:
        for node in inside(tree):
            if isinstance(node, ast.arg) and node.annotation is not None and names_set(node.annotation):
                yield node.arg
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and names_set(node.annotation):
                yield node.target.id
            elif isinstance(node, ast.Assign) and self.has(node.value):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))

    def has(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute):
            return node.attr in self.attributes
        if isinstance(node, ast.BinOp) and isinstance(node.op, OPERATORS):
            return any(self.has(side) or is_keys(side) for side in (node.left, node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in MAKERS
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in COMBINERS and self.has(node.func.value)
        return False


def inside(part: ast.AST) -> Iterator[ast.AST]:
    """All of a function; of a module what is in no function."""
    if not isinstance(part, ast.Module | ast.ClassDef):
        yield from ast.walk(part)
        return
    for statement in part.body:
        if isinstance(statement, ast.ClassDef):
            yield from inside(statement)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ast.walk(statement)


def is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")


def names_set(annotation: ast.expr) -> bool:
    """Is it `set[...]`, perhaps `| None`, of something else than int?"""
    if isinstance(annotation, ast.BinOp):
        return names_set(annotation.left) or names_set(annotation.right)
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.slice) == "int":
        return False
    return isinstance(annotation.value, ast.Name) and annotation.value.id in MAKERS


def set_attributes(source: Source) -> frozenset[str]:
    """Of any class of the file: `self._tasks: set[Task]`, and fields."""
    return frozenset(
        node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute | ast.Name)
        and names_set(node.annotation)
    )


def check_order(source: Source) -> Iterator[Violation]:
    """Nothing may depend on the order of a set: a seed would take another course in another process."""
    if not under(source, *REPLAYED) or under(source, *WITH_SOCKETS):
        return
    attributes = set_attributes(source)
    unseen = {id(node) for each in ast.walk(source.tree) if is_blind(each) for node in fed(each)}
    told: set[int] = set()
    parts: list[FunctionNode | ast.Module] = [*functions(source.tree), source.tree]
    for part in parts:
        sets = Sets(part, attributes)
        for node in inside(part):
            for read in ordered_reads(node):
                if sets.has(read) and id(node) not in unseen and id(read) not in told:
                    told.add(id(read))
                    yield source.violation(read, f"{ast.unparse(read)} has no order: dict.fromkeys, a list or sorted")


def is_blind(node: ast.AST) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and called(node) in BLIND and all(word.arg != "key" for word in node.keywords)


def fed(node: ast.AST) -> Iterator[ast.AST]:
    """What hands its elements to a node that does not mind their order."""
    if isinstance(node, ast.SetComp):
        yield from node.generators
    elif isinstance(node, ast.Set):
        yield from node.elts
    elif isinstance(node, ast.Call):
        for argument in node.args:
            yield argument
            if isinstance(argument, ast.GeneratorExp | ast.ListComp):
                yield from argument.generators


def called(node: ast.Call) -> str | None:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)


def ordered_reads(node: ast.AST) -> Iterator[ast.expr]:
    """What is read in its order here."""
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.iter
    elif isinstance(node, ast.Starred | ast.YieldFrom):
        yield node.value
    elif isinstance(node, ast.Call):
        if called(node) in ORDERING or any(word.arg == "key" for word in node.keywords):
            yield from node.args
        if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
            yield node.func.value
