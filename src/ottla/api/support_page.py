"""Writes docs/protocol-support.md from the table of APIs: `python -m ottla.api.support_page docs/protocol-
support.md`.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Final

from ottla.api.entry import Api
from ottla.api.table import APIS

KAFKA_APIS: Final = {
    "Security and quotas": "SaslHandshake, SaslAuthenticate, the ACL, delegation token, SCRAM and client quota APIs",
    "Share and streams groups": "all",
    "Moving replicas between directories": "AlterReplicaLogDirs",
}
"""What Kafka 4.3 has and Ottla has not: who asks for it anyway loses the connection, as with an older Kafka."""


def page() -> str:
    """The whole page."""
    rows = "\n".join(map(_row, sorted(APIS, key=lambda api: api.key)))
    missing = "\n".join(f"- **{area}**: {names}." for area, names in KAFKA_APIS.items())
    return (
        "# Protocol support\n\n"
        "Generated from `src/ottla/api/table.py` by `make docs`; do not edit. "
        "Versions are those of Apache Kafka 4.3.\n\n"
        "| key | API | versions | needs permission for | notes |\n|---|---|---|---|---|\n"
        f"{rows}\n\n"
        "Permissions are written down, not yet enforced: there is no authentication yet.\n\n"
        f"## Not served\n\n{missing}\n"
    )


def _row(api: Api) -> str:
    need = f"{api.permission.operation.name} on {api.permission.resource.name}" if api.permission else "nothing"
    return f"| {api.key} | {api.name} | {api.min_version}-{api.max_version} | {need} | {_notes(api)} |"


def _notes(api: Api) -> str:
    """The contract that the handler's file opens with, in one line."""
    module = inspect.getmodule(api.handler)
    text = inspect.cleandoc((module and module.__doc__) or "")
    _, _, notes = " ".join(text.split()).partition(": ")
    return notes.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
