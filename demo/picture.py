"""The run as a picture: rates, lag and latency over time, and when the broker was dead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from demo.timeline import Timeline, percentile

WRITTEN, RESULTS, LAG, DEAD = "#8a8f98", "#1f6feb", "#bf8700", "#cf222e"
SIZE_INCHES: Final = (10, 8)


def draw(path: Path, timeline: Timeline, title: str) -> bool:
    """Save it; False if there is no matplotlib to draw it with."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, lag, latency) = pyplot.subplots(3, 1, figsize=SIZE_INCHES, sharex=True, layout="constrained")
    figure.suptitle(title)
    last = int(timeline.now)
    _rates(rates, timeline, last)
    lag.plot(*zip(*timeline.lags(), strict=True), color=LAG)
    lag.set_ylabel("lag\n(events without a result)")
    lag.yaxis.set_major_formatter("{x:,.0f}")
    _latency(latency, timeline)
    latency.set_xlabel("seconds since the start")
    for panel in (rates, lag, latency):
        _mark(panel, timeline.marks)
        panel.margins(y=0.2)  # room for what is said at the top
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", alpha=0.3)
    # What is long before all events flow is only Spark's start.
    first = max(timeline.marks.get("first event", 0.0), timeline.marks.get("flow", 0.0) - 10)
    latency.set_xlim(first - 1, timeline.marks.get("drained", timeline.now) + 1)
    rates.legend(loc="upper left", frameon=False)
    latency.legend(loc="upper left", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _rates(panel: Any, timeline: Timeline, last: int) -> None:
    seconds = range(last)
    middles = [second + 0.5 for second in seconds]
    panel.plot(middles, [timeline.written[second] for second in seconds], color=WRITTEN, label="written")
    panel.plot(middles, [timeline.results[second] for second in seconds], color=RESULTS, label="committed results")
    panel.set_ylabel("events per second")
    panel.yaxis.set_major_formatter("{x:,.0f}")


def _latency(panel: Any, timeline: Timeline) -> None:
    seconds = sorted(timeline.latencies_ms)
    for share, name, style in ((0.5, "median", "-"), (0.99, "99 %", ":")):
        values = [percentile(timeline.latencies_ms[second], share) / 1000 for second in seconds]
        panel.plot([second + 0.5 for second in seconds], values, style, color=RESULTS, label=name)
    panel.set_ylabel("event to committed result\n(seconds)")


def _mark(panel: Any, marks: Mapping[str, float]) -> None:
    """The time between the kill and the broker's return."""
    if "killed" not in marks:
        return
    panel.axvline(marks["killed"], color=DEAD, linewidth=1)
    if "back" in marks:
        panel.axvspan(marks["killed"], marks["back"], color=DEAD, alpha=0.12)
        middle = (marks["killed"] + marks["back"]) / 2
        panel.annotate(
            "a broker is dead",
            (middle, 0.97),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=8,
            color=DEAD,
        )
