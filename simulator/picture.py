"""A trace as a picture: time goes down, each process is a line, each frame an arrow. Plain SVG, for any browser."""

from __future__ import annotations

from html import escape
from typing import Final

from simulator.findings import Finding
from simulator.trace import Arrow, Line, Trace

ARROWS_MAX: Final = 600
COLUMN_PX: Final = 220
ROW_PX: Final = 14
TOP_PX: Final = 60
LEFT_PX: Final = 110
COLOURS: Final = {"fault": "#c00", "kill": "#c00", "power loss": "#c00", "start": "#080", "ready": "#080"}


def picture(trace: Trace, findings: list[Finding], until_us: int) -> str:
    """The last few hundred frames before that time. Time is stretched: each event has its own row."""
    arrows = [arrow for arrow in trace.arrows if arrow.sent_us <= until_us][-ARROWS_MAX:]
    since_us = arrows[0].sent_us if arrows else 0
    lines = [line for line in trace.lines if since_us <= line.time_us <= until_us and line.kind != "debug"]
    places = sorted({*(a.source for a in arrows), *(a.target for a in arrows), *(line.place for line in lines)})
    times = sorted({*(a.sent_us for a in arrows), *(a.arrived_us for a in arrows), *(x.time_us for x in lines)})
    row = {time_us: TOP_PX + number * ROW_PX for number, time_us in enumerate(times)}
    column = {place: LEFT_PX + number * COLUMN_PX for number, place in enumerate(places)}
    height, width = TOP_PX + (len(times) + 2) * ROW_PX, LEFT_PX + len(places) * COLUMN_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace">',
        '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" fill="#369"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    if findings:
        parts.append(f'<text x="8" y="18" font-size="13" fill="#c00">{escape(str(findings[0]))[:300]}</text>')
    for place, x in column.items():
        parts.append(f'<line x1="{x}" y1="{TOP_PX}" x2="{x}" y2="{height}" stroke="#bbb"/>')
        parts.append(f'<text x="{x}" y="{TOP_PX - 12}" font-size="13" text-anchor="middle">{escape(place)}</text>')
    for time_us in times[::4]:
        parts.append(f'<text x="4" y="{row[time_us]}" font-size="10" fill="#777">{time_us / 1e6:.6f}</text>')
    parts += [_arrow(arrow, column, row) for arrow in arrows]
    parts += [_mark(line, column, row) for line in lines]
    return "\n".join([*parts, "</svg>", ""])


def _arrow(arrow: Arrow, column: dict[str, int], row: dict[int, int]) -> str:
    x1, x2, y1, y2 = column[arrow.source], column[arrow.target], row[arrow.sent_us], row[arrow.arrived_us]
    x, y = (x1 * 2 + x2) / 3, (y1 * 2 + y2) / 3 - 2
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#369" stroke-width="0.8" marker-end="url(#a)"/>'
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="9" fill="#369" text-anchor="middle">{escape(arrow.text)}</text>'
    )


def _mark(line: Line, column: dict[str, int], row: dict[int, int]) -> str:
    x, y, colour = column[line.place], row[line.time_us], COLOURS.get(line.kind, "#555")
    text = escape(f"{line.kind} {line.text}"[:80])
    return (
        f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
        f'<text x="{x + 6}" y="{y + 3}" font-size="10" fill="{colour}">{text}</text>'
    )
