"""The anomalies of a history: what clients of a log must never see.

Theory of operation. Every value is written once. The log of a partition, as observed, maps offsets to values: from
polls, from the full read at the end, and from sends that were told their offset. All anomalies are disagreements
about that map. At the end everything is readable and nothing runs, so the final read is the log, and what it lacks is
lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from simulator.checkers.cycles import check_cycles
from simulator.findings import Findings
from simulator.history import History, Outcome, Place, Poll, Send, key_of


def check_history(history: History, findings: Findings) -> None:
    """Report every anomaly."""
    Anomalies(history, findings).check()


class Anomalies:
    """One pass over a history."""

    def __init__(self, history: History, findings: Findings) -> None:
        self._history = history
        self._findings = findings
        self._log: dict[Place, dict[int, int]] = defaultdict(dict)
        self._offset_of: dict[int, tuple[Place, int]] = {}
        self._newest: dict[tuple[Place, int], int] | None = None
        """The last offset of each key in the final read."""

    def check(self) -> None:
        for (place, _), rows in self._history.final.items():
            self._observe(place, rows, "the final read")
        for poll in self._history.polls:
            self._observe(poll.place, poll.records, f"{poll.reader} at {poll.time_us / 1e6:.3f} s")
        for send in self._history.sends:
            if send.outcome is Outcome.OK and send.offset >= 0:
                self._observe(send.place, [(send.offset, send.value)], f"the answer to {send.producer}")
        self._check_sends()
        self._check_order_of_sends()
        self._check_aborted_reads()
        self._check_whole_transactions()
        self._check_polls()
        check_cycles(self._history, self._findings)

    def _observe(self, place: Place, rows: Iterable[tuple[int, int]], who: str) -> None:
        log = self._log[place]
        for offset, value in rows:
            known = log.setdefault(offset, value)
            if known != value:
                self._findings.add(
                    "inconsistent offsets", f"{place} offset {offset} is value {known}, but {who} has {value}"
                )
            first = self._offset_of.setdefault(value, (place, offset))
            if first != (place, offset):
                self._findings.add(
                    "duplicate",
                    f"value {value} is at {first[0]} offset {first[1]}, and {who} has it at {place} {offset}",
                )

    def _check_sends(self) -> None:
        """Lost and unseen writes: acknowledged, committed, and not in the final read."""
        final = {key: {value for _, value in rows} for key, rows in self._history.final.items()}
        for send in self._history.sends:
            committed = send.transaction is None or send.transaction.outcome is Outcome.OK
            if send.outcome is not Outcome.OK or (send.place, True) not in final:
                continue
            start = self._history.final_start.get(send.place, 0)
            if 0 <= send.offset < start:
                continue
            if committed and send.value not in final[send.place, True] and not self._is_superseded(send):
                rows = self._history.final[send.place, True]
                end = rows[-1][0] if rows else -1
                rule = "lost write" if send.offset <= end else "unseen"
                self._findings.add(rule, _describe(send) + f"; the final read of {send.place} ends at offset {end}")

    def _is_superseded(self, send: Send) -> bool:
        """Whether a compacted topic has a later value of the same key."""
        if not self._history.is_compacted(send.place.topic):
            return False
        if self._newest is None:
            self._newest = {
                (place, key_of(value)): offset
                for (place, committed), rows in self._history.final.items()
                if committed
                for offset, value in rows
            }
        return self._newest.get((send.place, key_of(send.value)), -1) > send.offset

    def _check_order_of_sends(self) -> None:
        last: dict[tuple[str, Place], Send] = {}
        for send in self._history.sends:
            found = self._offset_of.get(send.value)
            if send.outcome is not Outcome.OK or found is None:
                continue
            key = send.producer, send.place
            before = last.get(key)
            if before is not None and self._offset_of[before.value][1] >= found[1]:
                self._findings.add("non-monotonic send", f"{_describe(before)}, then {_describe(send)}")
            last[key] = send

    def _check_aborted_reads(self) -> None:
        sends = self._history.sends
        for key, rows in self._history.final.items():
            if key[1]:
                self._check_rows(rows, sends, "the final read")
        for poll in self._history.polls:
            if poll.committed_only:
                self._check_rows(poll.records, sends, f"{poll.reader} at {poll.time_us / 1e6:.3f} s")
            else:
                for _, value in poll.records:
                    if sends[value].outcome is Outcome.FAILED and sends[value].transaction is None:
                        self._findings.add("failed send was written", f"{poll.reader} read {_describe(sends[value])}")

    def _check_rows(self, rows: list[tuple[int, int]], sends: list[Send], who: str) -> None:
        for offset, value in rows:
            transaction = sends[value].transaction
            if transaction is not None and transaction.outcome in (Outcome.FAILED, Outcome.PENDING):
                text = f"{who} read offset {offset}, {_describe(sends[value])}, whose transaction was not committed"
                self._findings.add("aborted read", text)

    def _check_whole_transactions(self) -> None:
        """Of a transaction all is visible in the end, or nothing."""
        final = {key: {value for _, value in rows} for key, rows in self._history.final.items()}
        for transaction in self._history.transactions:
            sends = [
                send
                for send in transaction.sends
                if send.outcome is Outcome.OK and not self._history.is_compacted(send.place.topic)
            ]
            seen = [send for send in sends if send.value in final.get((send.place, True), set())]
            if seen and len(seen) != len(sends):
                lost = next(send for send in sends if send not in seen)
                self._findings.add("torn transaction", f"{_describe(seen[0])} is visible, {_describe(lost)} is not")

    def _check_polls(self) -> None:
        """Each reader goes forward, and skips nothing that it should be shown."""
        offsets = {
            (place, committed): [offset for offset, _ in self._history.to_be_seen(place, committed_only=committed)]
            for place, committed in self._history.final
        }
        last: dict[tuple[str, int, Place], Poll] = {}
        for poll in self._history.polls:
            key = poll.reader, poll.generation, poll.place
            before = last.get(key)
            last[key] = poll
            if before is not None and poll.begin < before.next_offset:
                self._findings.add("non-monotonic poll", f"{_show(poll)} after {_show(before)}")
            for (first, _), (second, _) in zip(poll.records, poll.records[1:], strict=False):
                if second <= first:
                    self._findings.add("non-monotonic poll", f"{_show(poll)}: offset {second} after {first}")
            self._check_skips(poll, offsets.get((poll.place, poll.committed_only)))

    def _check_skips(self, poll: Poll, offsets: list[int] | None) -> None:
        if offsets is None:
            return
        seen = {offset for offset, _ in poll.records}
        begin = max(poll.begin, self._history.final_start.get(poll.place, 0))
        for index in range(bisect_left(offsets, begin), len(offsets)):
            if offsets[index] >= poll.next_offset:
                break
            if offsets[index] not in seen:
                self._findings.add("poll skip", f"{_show(poll)} does not have offset {offsets[index]}")


def _describe(send: Send) -> str:
    told = f"acknowledged at offset {send.offset}" if send.offset >= 0 else send.outcome.name.lower()
    return f"value {send.value} of {send.producer} to {send.place}, {told} at {send.done_us / 1e6:.3f} s"


def _show(poll: Poll) -> str:
    return f"{poll.reader}'s poll of {poll.place} from {poll.begin} to {poll.next_offset} at {poll.time_us / 1e6:.3f} s"
