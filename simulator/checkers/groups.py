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
    """Whatever began after a commit was acknowledged, or an offset was read, has that offset or a later one.

    Of commits that are under way at the same time any may be the last. Whoever reads a lower offset because of that
    begins there, so from then on that one counts.
    """
    settled = sorted((use for use in uses if use.is_known), key=lambda use: use.done_us)
    begun = sorted(settled, key=lambda use: use.begun_us)
    lowered: set[OffsetUse] = set()
    highest: OffsetUse | None = None
    position = 0
    for use in begun:
        while position < len(settled) and settled[position].done_us <= use.begun_us:
            known = settled[position]
            if highest is None or known.offset > highest.offset or known in lowered:
                highest = known
            position += 1
        if highest is None or use.offset >= highest.offset:
            continue
        if not _may_be_the_last(use, settled[:position], uses):
            findings.add("committed offsets never go back", f"{_show(highest)}, then {_show(use)}")
            return
        lowered.add(use)


def _may_be_the_last(read: OffsetUse, before: list[OffsetUse], uses: list[OffsetUse]) -> bool:
    """Whether a commit of what was read was still under way when the last higher one of those before it began.

    Transactions of one id have an order, and so have their offsets.
    """
    if not read.is_read or read.is_transactional:
        return False
    higher_us = max(use.begun_us for use in before if use.offset > read.offset)
    return any(
        not use.is_read and use.offset == read.offset and use.begun_us < read.done_us and use.done_us > higher_us
        for use in uses
    )


def _check_committed(history: History, uses: list[OffsetUse], findings: Findings) -> None:
    for use in uses:
        if use.is_read and use.offset >= 0 and history.transactions[use.offset].outcome is Outcome.FAILED:
            findings.add("aborted offsets are never read", f"{_show(use)}, of a transaction that was aborted")


def _check_read(history: History, uses: list[OffsetUse], findings: Findings) -> None:
    """Every record below the last committed offset was in a poll of a member of the group."""
    commits = [use for use in uses if use.is_known and not use.is_read]
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
