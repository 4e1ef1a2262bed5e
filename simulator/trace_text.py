"""A trace as text: what happened, where and when, up to the first thing that must not be."""

from __future__ import annotations

from typing import Final

from simulator.trace import Trace

LINES_MAX: Final = 4000


def trace_text(trace: Trace, until_us: int, *, seconds: float) -> str:
    """The last seconds before that time, faults and the lives of processes from the beginning."""
    since_us = until_us - int(seconds * 1_000_000)
    rows: list[tuple[int, int, str]] = []
    for line in trace.lines:
        if line.time_us <= until_us and (line.time_us >= since_us or line.kind not in ("debug", "info")):
            rows.append((line.time_us, 0, f"{line.place:<12} {line.kind.upper():<10} {line.text}"))
    for arrow in trace.arrows:
        if since_us <= arrow.sent_us <= until_us:
            late = f"+{(arrow.arrived_us - arrow.sent_us) / 1000:.2f} ms"
            rows.append((arrow.sent_us, 1, f"{arrow.source:<12} -> {arrow.target:<12} {arrow.text}  {late}"))
    rows.sort(key=lambda row: row[:2])
    left_out = max(len(rows) - LINES_MAX, 0)
    shown = [f"{time_us / 1e6:>12.6f}  {text}" for time_us, _, text in rows[left_out:]]
    return "\n".join([*([f"({left_out} earlier lines are left out)"] if left_out else []), *shown, ""])
