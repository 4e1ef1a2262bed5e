"""Every anomaly is found in a history that has it, and none in one that has not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulator.checkers.anomalies import check_history
from simulator.checkers.groups import check_groups
from simulator.findings import Findings
from simulator.history import NEVER_US, History, OffsetUse, Outcome, Place, Poll, Send
from simulator.timeline import Timeline

PLACE = Place("orders", 0)


def send(history: History, offset: int, outcome: Outcome = Outcome.OK) -> Send:
    made = history.send(PLACE, "p", len(history.sends))
    history.settle(made, outcome, offset)
    return made


def poll(history: History, begin: int, end: int, records: list[tuple[int, int]], *, committed: bool = True) -> None:
    history.poll(Poll(0, "r", 0, PLACE, committed, begin, end, records))


def good_history() -> History:
    """Three sends, all read, by one reader and at the end."""
    history = History(Timeline())
    for offset in range(3):
        send(history, offset)
    rows = [(0, 0), (1, 1), (2, 2)]
    poll(history, 0, 2, rows[:2])
    poll(history, 2, 3, rows[2:])
    history.final = {(PLACE, True): list(rows), (PLACE, False): list(rows)}
    return history


def lose_a_write(history: History) -> None:
    for rows in history.final.values():
        rows.remove((1, 1))


def leave_unseen(history: History) -> None:
    send(history, 3)


def read_two_values_at_one_offset(history: History) -> None:
    send(history, 5)
    poll(history, 0, 1, [(0, 3)])


def read_a_value_twice(history: History) -> None:
    for rows in history.final.values():
        rows.append((3, 0))


def read_an_aborted_value(history: History) -> None:
    transaction = history.begin("t")
    made = history.send(PLACE, "t", 0, transaction)
    history.settle(made, Outcome.OK, 3)
    transaction.outcome = Outcome.FAILED
    poll(history, 3, 4, [(3, made.value)])


def tear_a_transaction(history: History) -> None:
    transaction = history.begin("t")
    transaction.outcome = Outcome.UNKNOWN
    for offset in (3, 4):
        history.settle(history.send(PLACE, "t", offset, transaction), Outcome.OK, offset)
    history.final[PLACE, True].append((3, 3))


def skip_in_a_poll(history: History) -> None:
    history.polls[0] = history.polls[0]._replace(records=[(0, 0)])


def go_back(history: History) -> None:
    poll(history, 1, 2, [(1, 1)])


def reorder_sends(history: History) -> None:
    history.sends[0].producer = history.sends[1].producer = "q"
    history.sends[0], history.sends[1] = history.sends[1], history.sends[0]
    history.sends[0].value, history.sends[1].value = 0, 1
    history.sends[0].offset, history.sends[1].offset = 1, 0
    for key in history.final:
        history.final[key] = [(0, 1), (1, 0), (2, 2)]
    history.polls.clear()


def transaction_that_reads(history: History, *values: int) -> int:
    """A committed transaction that wrote one value, which is returned, and has read these."""
    transaction = history.begin("t")
    transaction.outcome = Outcome.OK
    made = history.send(PLACE, "t", len(history.sends), transaction)
    history.settle(made, Outcome.OK, made.value)
    for rows in history.final.values():
        rows.append((made.value, made.value))
    transaction.reads += [(PLACE, value, value) for value in values]
    return made.value


def read_in_a_circle(history: History) -> None:
    first = transaction_that_reads(history, 4)
    second = transaction_that_reads(history, 5)
    transaction_that_reads(history, first)
    assert second == first + 1


def read_what_is_not_committed(history: History) -> None:
    transaction_that_reads(history, 3)


def test_transactions_that_read_from_earlier_ones_are_in_order() -> None:
    history, findings = good_history(), Findings(lambda: 0)
    first = transaction_that_reads(history, 0)
    transaction_that_reads(history, first, 1)
    transaction_that_reads(history, first, first + 1)
    check_history(history, findings)
    assert findings.found == []


def test_a_compacted_topic_may_lack_what_a_later_value_of_the_key_has_replaced() -> None:
    found = []
    for is_compacted in (True, False):
        history, findings = good_history(), Findings(lambda: 0)
        history.is_compacted = {PLACE.topic: is_compacted}.__getitem__
        for value in range(3, 6):
            send(history, value)
        for rows in history.final.values():
            rows[:] = [(offset, offset) for offset in range(1, 6)]
        history.polls.clear()
        check_history(history, findings)
        found.append([finding.rule for finding in findings.found])
    assert found == [[], ["lost write"]]


def test_a_compacted_topic_has_the_last_value_of_each_key() -> None:
    history, findings = good_history(), Findings(lambda: 0)
    history.is_compacted = lambda topic: True
    lose_a_write(history)
    check_history(history, findings)
    assert [finding.rule for finding in findings.found] == ["lost write"]


def test_a_good_history_shows_nothing() -> None:
    findings = Findings(lambda: 0)
    check_history(good_history(), findings)
    assert findings.found == []


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lose_a_write, "lost write"),
        (leave_unseen, "unseen"),
        (read_two_values_at_one_offset, "inconsistent offsets"),
        (read_a_value_twice, "duplicate"),
        (read_an_aborted_value, "aborted read"),
        (tear_a_transaction, "torn transaction"),
        (skip_in_a_poll, "poll skip"),
        (go_back, "non-monotonic poll"),
        (reorder_sends, "non-monotonic send"),
        (read_in_a_circle, "G1c"),
        (read_what_is_not_committed, "pre-committed read"),
    ],
)
def test_an_anomaly_is_found(spoil: Callable[[History], None], rule: str) -> None:
    history, findings = good_history(), Findings(lambda: 0)
    spoil(history)
    check_history(history, findings)
    assert rule in {finding.rule for finding in findings.found}


@pytest.mark.parametrize(
    ("uses", "rule"),
    [
        ([(0, 1, 2, False), (2, 3, 1, True)], "committed offsets never go back"),
        ([(0, 1, 3, False)], "a group reads everything"),
        ([(0, 5, 0, False), (2, 3, 0, True)], None),
        ([(0, 5, 1, False), (2, 3, 2, False), (6, 7, 1, True), (8, 9, 1, False)], None),
        ([(0, NEVER_US, 1, False), (2, 3, 2, False), (6, 7, 1, True)], None),
        ([(0, 1, 1, False), (2, 3, 2, False), (4, 5, 1, False)], "committed offsets never go back"),
        ([(0, 2, 1, False), (2, 3, 2, False), (6, 7, 1, True)], "committed offsets never go back"),
        ([(0, 5, 1, False), (2, 3, 2, False), (5, 6, 2, True), (7, 8, 1, True)], "committed offsets never go back"),
        ([(0, 5, 0, False), (2, 3, 2, False), (6, 7, 1, True)], "committed offsets never go back"),
        ([(0, NEVER_US, 3, False)], None),
    ],
    ids=[
        "an older one is read",
        "something below was never read",
        "read while it is committed",
        "the lower of two that were under way is read, and counts from then on",
        "a lower one that may have come late is read",
        "a lower one is committed later",
        "the lower one was over when the higher one began",
        "the higher one was read after both",
        "one that nobody was committing is read",
        "nobody knows whether it was committed",
    ],
)
def test_offsets_of_a_group(uses: list[tuple[int, int, int, bool]], rule: str | None) -> None:
    history, findings = good_history(), Findings(lambda: 0)
    history.polls = [found._replace(reader="m/g") for found in history.polls[:1]]
    for begun_us, done_us, offset, is_read in uses:
        history.offsets.append(OffsetUse(begun_us, done_us, "g", PLACE, offset, is_read))
    check_groups(history, findings)
    assert [finding.rule for finding in findings.found] == ([] if rule is None else [rule])


@pytest.mark.parametrize(
    ("outcome", "is_found"), [(Outcome.OK, False), (Outcome.UNKNOWN, False), (Outcome.FAILED, True)]
)
def test_the_offset_of_an_aborted_transaction_is_never_read(outcome: Outcome, is_found: bool) -> None:
    history, findings = good_history(), Findings(lambda: 0)
    transaction = history.begin("t")
    transaction.outcome = outcome
    history.offsets.append(
        OffsetUse(5, 6, "t-progress", PLACE, transaction.number, is_read=True, is_transactional=True)
    )
    check_groups(history, findings)
    assert [finding.rule for finding in findings.found] == (["aborted offsets are never read"] if is_found else [])
