"""What code may not reach for: clock, chance, threads and files where they are handed in; blocking calls on the loop.

A name counts wherever it is used, called or not: `default_factory=time.time` reads the clock as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.sources import FunctionNode, Source, Violation, dotted, full_names, functions, imports, under

PURE = ("ottla.core",)
PURE_BANNED_MODULES = frozenset(
    {"asyncio", "concurrent", "multiprocessing", "selectors", "select", "signal", "socket", "ssl", "subprocess"}
    | {"fcntl", "glob", "io", "os", "pathlib", "resource", "shutil", "tempfile"}
    | {"random", "secrets", "threading", "time"}
)
PURE_BANNED_BUILTINS = frozenset({"open", "print", "input"})

WORLD_KEEPERS = (
    "ottla.runtime.world",
    "ottla.server",
    "ottla.cli",
    "ottla.client",
    "ottla.console",
    "ottla.broker",
    "ottla.broker_process",
    "ottla.embed",
    "ottla.pytest_plugin",
    # A process of its own, started by the runtime: nothing simulated runs in it.
    "ottla.runtime.record_worker_main",
    "pyspark_ottla",
)
"""Where the machine's clock, chance and threads may be touched. Everybody else is handed a World."""
WORLD_BANNED_MODULES = frozenset({"time", "random", "secrets", "threading"})
WORLD_BANNED_NAMES = frozenset(
    {
        "uuid.uuid1",
        "uuid.uuid4",
        "os.urandom",
        "os.getrandom",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
WORLD_ALLOWED_NAMES = frozenset({"random.Random", "time.struct_time"})
"""Types to name in a signature; a Random that is handed in is the World's."""

ON_THE_LOOP = ("ottla.api", "ottla.server", "ottla.runtime")
BLOCKING_NAMES = frozenset(
    {"open", "input"}
    | {"time.sleep", "os.fsync", "os.fdatasync", "os.sync", "os.system", "os.popen", "os.wait", "os.waitpid"}
    | {"os.remove", "os.unlink", "os.rename", "os.replace", "os.walk", "os.listdir", "os.scandir"}
    | {f"shutil.{name}" for name in ("rmtree", "copy", "copy2", "copyfile", "copytree", "move")}
    | {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput")}
    | {"socket.create_connection", "socket.getaddrinfo", "socket.gethostbyname", "urllib.request.urlopen"}
)
BLOCKING_MODULES = frozenset({"requests", "httpx"})
BLOCKING_METHODS = frozenset(
    {"read_text", "read_bytes", "write_text", "write_bytes", "sync", "sync_dir", "sync_until", "remove_tree"}
    | {"write_atomically"}
)
"""Methods of paths and of the log's disk that wait for the device. Nothing else on the loop may bear these names."""

THREAD_MARK = "runs in a thread"
START_MARK = "runs before serving"
MARKS = (THREAD_MARK, START_MARK)
"""Words in a function's docstring, or in a comment on its `def` or the line above, that take it out of the rule."""


def used_names(source: Source) -> Iterator[tuple[str, ast.expr]]:
    """Every dotted name that is read, in full, outermost only: `os.path.join` is not `os.path` too."""
    names = full_names(source)
    bases = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in bases:
            name = dotted(node, names)
            if name is not None:
                yield name, node


def check_pure(source: Source) -> Iterator[Violation]:
    """A core decides; it is handed time, chance and the answers of files, and returns what is to be done."""
    if not under(source, *PURE):
        return
    for found in imports(source):
        if found.name.split(".")[0] in PURE_BANNED_MODULES:
            yield source.violation(found.line, f"core/ is pure: {found.name} is out of its reach")
    for name, node in used_names(source):
        if name in PURE_BANNED_BUILTINS:
            yield source.violation(node, f"core/ is pure: no {name}()")


def check_world(source: Source) -> Iterator[Violation]:
    """The clock, chance and threads are handed in, or a simulated run cannot be repeated."""
    if under(source, *WORLD_KEEPERS):
        return
    for name, node in used_names(source):
        if reads_world(name):
            yield source.violation(node, f"{name} is reached through the World that is handed in (runtime/world.py)")


def reads_world(name: str) -> bool:
    if any(name == allowed or name.startswith(allowed + ".") for allowed in WORLD_ALLOWED_NAMES):
        return False
    return name in WORLD_BANNED_NAMES or ("." in name and name.split(".")[0] in WORLD_BANNED_MODULES)


def check_blocking(source: Source) -> Iterator[Violation]:
    """Nothing that waits for a device or for another process is called on the loop."""
    if not under(source, *ON_THE_LOOP):
        return
    names = full_names(source)
    off_the_loop = [function for function in functions(source.tree) if marked(source, function)]
    exempt = {id(node) for part in [*off_the_loop, *main_blocks(source)] for node in ast.walk(part)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and id(node) not in exempt:
            name = blocking_name(node, names)
            if name is not None:
                rule = f"{name} blocks the loop: hand the function to offload, and say `# {THREAD_MARK}` on its def"
                yield source.violation(node, rule)


def main_blocks(source: Source) -> Iterator[ast.stmt]:
    """What runs when a module is a program of its own; there is no loop then."""
    for node in source.tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            yield node


def blocking_name(call: ast.Call, names: dict[str, str]) -> str | None:
    """What the call is known by, if it is known to block. An awaited `sync` would have another name."""
    name = dotted(call.func, names)
    if name is not None and (name in BLOCKING_NAMES or name.split(".")[0] in BLOCKING_MODULES):
        return name
    if isinstance(call.func, ast.Attribute) and call.func.attr in BLOCKING_METHODS:
        return f".{call.func.attr}()"
    return None


def marked(source: Source, function: FunctionNode) -> bool:
    """Does the function say, in its docstring or in a comment on its `def`, that the loop does not run it?"""
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    signature_end = max(function.body[0].lineno - 1, function.lineno)
    comments = [line.partition("#")[2] for line in source.lines[max(first - 2, 0) : signature_end]]
    said = "\n".join([*comments, ast.get_docstring(function) or ""])
    return any(mark in said for mark in MARKS)
