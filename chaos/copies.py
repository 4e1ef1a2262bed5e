"""Exactly once: each committed record is copied by one committed transaction, and none is left out."""

from __future__ import annotations

from chaos.recording import Recording
from simulator.findings import Findings
from simulator.history import Place


def check_copies(recording: Recording, findings: Findings) -> None:
    """Report records that were copied twice, not at all, or that were not there to be copied."""
    copied: dict[tuple[Place, int], int] = {}
    for (place, committed_only), rows in recording.final.items():
        for offset, value in rows if committed_only else ():
            source = recording.copied_from.get(value)
            if source is None:
                continue
            if source in copied:
                text = f"{source[0]} {source[1]} is copied by value {copied[source]} and by {value} at {place} {offset}"
                findings.add("copied twice", text)
            copied[source] = value
    for place, end in recording.copied_to.items():
        rows = recording.final.get((place, True), [])
        offsets = {offset for offset, _ in rows}
        for offset in sorted(offsets):
            if offset < end and (place, offset) not in copied:
                findings.add("not copied", f"{place} {offset} is not copied, but the group is at {end}")
        for source_place, offset in copied:
            if source_place == place and offset not in offsets:
                findings.add("copied from nothing", f"{place} {offset} was copied and is not there")
