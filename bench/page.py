"""docs/benchmarks.md: tables, plots and the machine, written by the run that measured them."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

from bench import machine
from bench.floors import broken, floor_of
from bench.plots import plot
from bench.results import Measure, Results, number
from bench.sections import SECTIONS
from bench.tools import KAFKA_VERSION, Tools

WIDTH = 120
INTRODUCTION = """`make bench` writes this page. Both systems run on 127.0.0.1 with the same settings, as one broker
where nothing else is said, in one run and in turns; a figure is the median of its rounds, and ± is half their spread.
Absolute figures belong to this machine, so the ratio is what counts. `~` marks figures during which other work
disturbed the machine. Before each sample the page cache is full, as it is wherever a broker has run for a while: the
first write to memory that a virtual machine has given back to its host may cost more than all that a broker does with
the same bytes. A run fails when a floor does not hold."""


def write(page: Path, results: Results, tools: Tools, rounds: int) -> None:
    """The page, and beside it a folder of its name with a plot for each section."""
    plots = page.with_suffix("")
    plots.mkdir(parents=True, exist_ok=True)
    blocks = [
        "# Benchmarks",
        f"<!-- Written by `make bench`; edits are lost. -->\n{fill(INTRODUCTION)}",
        taken_on(rounds),
    ]
    if tools.kafka_missing:
        blocks.append(f"**Apache Kafka was not measured: {tools.kafka_missing}.** Floors that compare are not judged.")
    if tools.load_missing:
        blocks.append(f"**Figures that want raw load are missing: {tools.load_missing}.**")
    for name, section in SECTIONS.items():
        measures = [measure for measure in results.samples if measure.key.startswith(f"{name}.")]
        if measures:
            image = plots / f"{name}.png"
            plot(image, section.TITLE, measures, results)
            blocks += [f"## {section.TITLE}", fill(section.ABOUT), table(measures, results)]
            blocks += reasons(measures, results)
            blocks.append(f"![{section.TITLE}]({plots.name}/{image.name})")
    blocks += ["## Floors", floors_told(results)]
    page.write_text("\n\n".join(blocks) + "\n")


def fill(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def taken_on(rounds: int) -> str:
    rows = machine.describe() | {
        "Apache Kafka": KAFKA_VERSION,
        "taken": f"{time.strftime('%Y-%m-%d', time.gmtime())}, {rounds} round{'s' * (rounds > 1)}",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def table(measures: list[Measure], results: Results) -> str:
    head = ["| measure | unit | better | Apache Kafka | Ottla | ratio | floor |", "|---|---|---|---:|---:|---:|---|"]
    return "\n".join(head + [f"| {' | '.join(row(measure, results))} |" for measure in measures])


def row(measure: Measure, results: Results) -> list[str]:
    floor = floor_of(measure.key)
    judged = f"{floor}: {floor.judge(results).value}" if floor else ""
    better = "higher" if measure.higher_is_better else "lower"
    cells = [cell(measure, "kafka", results), cell(measure, "ottla", results), number(results.ratio(measure))]
    return [measure.title, measure.unit, better, *cells, judged]


def cell(measure: Measure, system: str, results: Results) -> str:
    value = results.median(measure, system)
    if value is None:
        return "n/a" if (measure.key, system) in results.missing else "-"
    disturbed = any(sample.disturbed for sample in results.counted(measure, system))
    return f"{number(value)} ±{results.spread_percent(measure, system):.0f}%{' ~' * disturbed}"


def reasons(measures: list[Measure], results: Results) -> list[str]:
    """Why figures are missing, each reason once."""
    keys = {measure.key: measure for measure in measures}
    found = [(key, system) for key, system in results.missing if key in keys]
    told = {str(results.missing[at]): f"{at[1]}, {keys[at[0]].title}" for at in reversed(found)}
    return ["\n".join(f"- n/a, {where}: {reason}" for reason, where in told.items())] if told else []


def floors_told(results: Results) -> str:
    sentences = broken(results)
    return "\n".join(f"- {sentence}" for sentence in sentences) if sentences else "Every floor that was judged holds."
