"""Who may import whom. The table is the architecture; docs/ARCHITECTURE.md tells why."""

from __future__ import annotations

from collections.abc import Iterator

from tests.tidy.sources import Import, Source, Violation, imports

MODEL = "ottla.model"
WIRE = "ottla.wire"
LOG = "ottla.log"
CORE = "ottla.core"
RUNTIME = "ottla.runtime"
SECURITY = "ottla.security"
API = "ottla.api"
SERVER = "ottla.server"
CLIENT = "ottla.client"
CONSOLE = "ottla.console"
CLI = "ottla.cli"
BROKER = "ottla.broker"
BROKER_PARTS = "ottla.broker_parts"
BROKER_PROCESS = "ottla.broker_process"
EMBED = "ottla.embed"
LOGS = "ottla.logs"
SPARK = "ottla.spark"
VERSION = "ottla.__version__"

BATCH_SIDE = tuple(f"{WIRE}.{name}" for name in ("batch", "compiled", "compression", "crc", "produced", "records"))
"""What the log knows of the wire: batches, not messages."""

ALLOWED: dict[str, tuple[str, ...]] = {
    MODEL: (),
    WIRE: (MODEL,),
    LOG: (MODEL, *BATCH_SIDE),
    CORE: (MODEL,),
    SECURITY: (MODEL,),
    CLIENT: (WIRE, MODEL, VERSION),
    RUNTIME: (CORE, LOG, CLIENT, WIRE, MODEL, VERSION),
    API: (RUNTIME, CORE, WIRE, SECURITY, MODEL, VERSION),
    SERVER: (API, RUNTIME, WIRE, SECURITY, MODEL, VERSION),
    CONSOLE: (CLIENT, MODEL, VERSION),
    CLI: (CLIENT, MODEL, WIRE, BROKER_PROCESS, EMBED, LOGS, VERSION),
    BROKER_PARTS: ("ottla",),
    BROKER: ("ottla",),
    BROKER_PROCESS: (BROKER, MODEL),
    LOGS: (),
    EMBED: (BROKER, BROKER_PROCESS, CLIENT, LOGS, MODEL),
    "ottla.pytest_plugin": (EMBED, CLIENT, MODEL),
    "ottla.__main__": (CLI,),
    "pyspark_ottla": (CLIENT, WIRE, MODEL, VERSION),
    SPARK: ("pyspark_ottla", CLIENT, MODEL, VERSION),
    # The package itself hands out `ottla.Server`; imports of it are those of one name.
    "ottla": (EMBED,),
}
"""Package (or module) to what it may import besides itself, the standard library and other people's packages."""

ALLOWED_FOR_TYPES: dict[str, tuple[str, ...]] = {API: (LOG,), SERVER: (CORE, LOG)}
"""What may stand under `if TYPE_CHECKING:` besides: who is handed a thing may name its type."""

FOREIGN_ONLY_IN: dict[str, tuple[str, ...]] = {
    # What tests compare Ottla with: a test that shares code with its subject proves nothing.
    "kio": (),
    "confluent_kafka": (),
    "kafka": (),
    "aiokafka": (),
    "hypothesis": (),
    "pytest": ("ottla.pytest_plugin",),
    # Compiled code costs 60 MB and seconds of start; only the record worker and Spark load it.
    "numba": (f"{WIRE}.compiled",),
    "pyspark": ("pyspark_ottla", SPARK),
    "pyarrow": ("pyspark_ottla",),
}
"""Other people's packages that are fenced in, and where they may be imported."""

OURS = ("ottla", "pyspark_ottla")


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def layer_of(module: str) -> str | None:
    """The longest entry of the table that the module lies in."""
    entries = [entry for entry in ALLOWED if inside(module, entry)]
    # `ottla` stands for the package's own __init__ only, or a new package would inherit its rights.
    return max((entry for entry in entries if entry != "ottla" or module == "ottla"), key=len, default=None)


def check_layers(source: Source) -> Iterator[Violation]:
    """Imports that the table does not allow."""
    layer = layer_of(source.module)
    if layer is None:
        yield source.violation(1, f"{source.module} has no layer: give it a row in tests/tidy/layers.py")
        return
    for found in imports(source):
        top = found.name.split(".")[0]
        if top in OURS and not may_import(layer, found):
            allowed = ", ".join(ALLOWED[layer]) or "nothing of ours"
            yield source.violation(found.line, f"{layer} may not import {found.name}; it may import {allowed}")
        if top in FOREIGN_ONLY_IN and not any(inside(source.module, place) for place in FOREIGN_ONLY_IN[top]):
            where = ", ".join(FOREIGN_ONLY_IN[top]) or "tests"
            yield source.violation(found.line, f"{top} may be imported only in {where}")


def may_import(layer: str, found: Import) -> bool:
    allowed = ALLOWED[layer]
    if found.types_only:
        allowed += ALLOWED_FOR_TYPES.get(layer, ())
    if layer != "ottla":
        allowed += (layer,)
    return any(inside(found.name, package) for package in allowed)
