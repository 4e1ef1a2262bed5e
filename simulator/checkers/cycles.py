"""Transactions that read from one another in a circle (G1c), or that read what they themselves have not committed.

Only reads count as edges. Kafka's transactions do not order the writes of two producers, so two of them may well be
each before the other in two partitions (G0), and a cycle with such an edge in it is nothing wrong.
"""

from __future__ import annotations

from simulator.findings import Findings
from simulator.history import History, Transaction


def check_cycles(history: History, findings: Findings) -> None:
    """Report them."""
    read_from: dict[int, set[int]] = {}
    for transaction in history.transactions:
        sources = {source for _, _, value in transaction.reads if (source := _writer(history, value)) is not None}
        own = [row for row in transaction.reads if _writer(history, row[2]) == transaction.number]
        if own:
            place, offset, value = own[0]
            text = f"{_show(transaction)} read value {value} at {place} offset {offset}, which it wrote itself"
            findings.add("pre-committed read", text)
        read_from[transaction.number] = sources - {transaction.number}
    cycle = _find_cycle(read_from)
    if cycle:
        text = " read from ".join(_show(history.transactions[number]) for number in cycle)
        findings.add("G1c", text)


def _writer(history: History, value: int) -> int | None:
    transaction = history.sends[value].transaction
    return None if transaction is None else transaction.number


def _find_cycle(edges: dict[int, set[int]]) -> list[int]:
    """A cycle, the first one again at its end; empty if there is none."""
    done: set[int] = set()
    for start in edges:
        path, waiting = [start], [sorted(edges[start])]
        while path and start not in done:
            if not waiting[-1]:
                done.add(path.pop())
                waiting.pop()
                continue
            following = waiting[-1].pop()
            if following in path:
                return [*path[path.index(following) :], following]
            if following not in done:
                path.append(following)
                waiting.append(sorted(edges[following]))
    return []


def _show(transaction: Transaction) -> str:
    return f"transaction {transaction.number} of {transaction.transactional_id}"
