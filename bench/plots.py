"""One picture per section: a panel per measure, a bar per system."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from bench.results import Measure, Results, number

COLORS = {"kafka": "#8a8f98", "ottla": "#1f6feb"}
NAMES = {"kafka": "Kafka", "ottla": "Ottla"}
PANELS_PER_ROW = 4
PANEL_INCHES = (2.6, 2.5)


def plot(path: Path, title: str, measures: list[Measure], results: Results) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(PANELS_PER_ROW, len(measures))
    rows = -(-len(measures) // columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.4)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    figure.suptitle(title)
    for panel, measure in zip(axes.flat, measures, strict=False):
        draw(panel, measure, results)
    for panel in axes.flat[len(measures) :]:
        panel.set_visible(False)
    # Without the version of the library in it, the same figures give the same file.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def draw(panel: matplotlib.axes.Axes, measure: Measure, results: Results) -> None:
    medians = {system: results.median(measure, system) for system in NAMES}
    shown = {system: value for system, value in medians.items() if value is not None}
    bars = panel.bar(
        [NAMES[system] for system in shown], list(shown.values()), color=[COLORS[system] for system in shown]
    )
    panel.bar_label(bars, labels=[number(value) for value in shown.values()], fontsize=8)
    direction = "higher is better" if measure.higher_is_better else "lower is better"
    panel.set_title(measure.title, fontsize=8)
    panel.set_ylabel(f"{measure.unit} ({direction})", fontsize=7)
    panel.tick_params(labelsize=8)
    panel.margins(y=0.15)
    panel.spines[["top", "right"]].set_visible(False)
