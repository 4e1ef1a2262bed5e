"""Groups as their members see them: offsets never go back, and what was committed was read by somebody.

Offsets that are committed in transactions count if their transaction does: one that was aborted is never read.
"""

from __future__ import annotations

from collections import defaultdict

from simulator.findings import Findings
from simulator.history import History, OffsetUse, Outcome, Place


def check_groups(history: History, findings: Findings) -> None:
    """Report what broke."""
    by_place: dict[tuple[str, Place], list[OffsetUse]] = defaultdict(list)
    for use in history.offsets:
        by_place[use.group, use.place].append(use)
    for uses in by_place.values():
        _check_forward(uses, findings)
        if uses[0].is_transactional:
            _check_committed(history, uses, findings)
        else:
            _check_read(history, uses, findings)


def _check_forward(uses: list[OffsetUse], findings: Findings) -> None:
    """Whatever began after a commit was acknowledged, or an offset was read, has that offset or a later one."""
    settled = sorted(uses, key=lambda use: use.done_us)
    begun = sorted(uses, key=lambda use: use.begun_us)
    highest: OffsetUse | None = None
    position = 0
    for use in begun:
        while position < len(settled) and settled[position].done_us <= use.begun_us:
            if highest is None or settled[position].offset > highest.offset:
                highest = settled[position]
            position += 1
        if highest is not None and use.offset < highest.offset:
            findings.add("committed offsets never go back", f"{_show(highest)}, then {_show(use)}")
            return


def _check_committed(history: History, uses: list[OffsetUse], findings: Findings) -> None:
    for use in uses:
        if use.is_read and use.offset >= 0 and history.transactions[use.offset].outcome is Outcome.FAILED:
            findings.add("aborted offsets are never read", f"{_show(use)}, of a transaction that was aborted")


def _check_read(history: History, uses: list[OffsetUse], findings: Findings) -> None:
    """Every record below the last committed offset was in a poll of a member of the group."""
    commits = [use for use in uses if not use.is_read]
    if not commits:
        return
    group, place = commits[0].group, commits[0].place
    end = max(use.offset for use in commits)
    read = {
        offset
        for poll in history.polls
        if poll.place == place and poll.reader.endswith(f"/{group}")
        for offset, _ in poll.records
    }
    for offset, value in history.to_be_seen(place, committed_only=True):
        if offset < end and offset not in read:
            text = (
                f"{group} committed {end} at {place}, but none of its members has read offset {offset}, value {value}"
            )
            findings.add("a group reads everything", text)
            return


def _show(use: OffsetUse) -> str:
    verb = "read" if use.is_read else "committed"
    times = f"{use.begun_us / 1e6:.3f} to {use.done_us / 1e6:.3f} s"
    return f"{use.group} {verb} offset {use.offset} of {use.place} ({times})"
