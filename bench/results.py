"""What was measured: samples by measure and system, their medians and ratios."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench.errors import NotMeasured

DISTURBED_PERCENT = 40
"""A sample during which other processes used more of a core than this is taken again, or marked."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure. `key` names it in floors, `title` and `unit` on the page."""

    key: str
    title: str
    unit: str
    higher_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    value: float
    foreign_percent: float

    @property
    def disturbed(self) -> bool:
        return self.foreign_percent > DISTURBED_PERCENT


@dataclass(slots=True)
class Results:
    """Samples in the order in which measures first came up."""

    samples: dict[Measure, dict[str, list[Sample]]] = field(default_factory=dict)
    missing: dict[tuple[str, str], NotMeasured] = field(default_factory=dict)
    """(measure key, system) to the reason why there is no figure."""

    def add(self, measure: Measure, system: str, sample: Sample) -> None:
        self.samples.setdefault(measure, {}).setdefault(system, []).append(sample)

    def miss(self, measure: Measure, system: str, reason: NotMeasured) -> None:
        self.samples.setdefault(measure, {})
        self.missing.setdefault((measure.key, system), reason)

    def counted(self, measure: Measure, system: str) -> list[Sample]:
        """The samples that count: the undisturbed ones, or all where none is."""
        samples = self.samples.get(measure, {}).get(system, [])
        return [sample for sample in samples if not sample.disturbed] or samples

    def median(self, measure: Measure, system: str) -> float | None:
        samples = self.counted(measure, system)
        return statistics.median(sample.value for sample in samples) if samples else None

    def spread_percent(self, measure: Measure, system: str) -> float:
        """Half the distance between the extremes, in percent of the median."""
        values = [sample.value for sample in self.counted(measure, system)]
        middle = statistics.median(values)
        return (max(values) - min(values)) / 2 / middle * 100 if middle else 0.0

    def ratio(self, measure: Measure) -> float | None:
        """Ottla's median over Kafka's."""
        ottla, kafka = self.median(measure, "ottla"), self.median(measure, "kafka")
        return ottla / kafka if ottla is not None and kafka else None

    def by_key(self) -> dict[str, Measure]:
        return {measure.key: measure for measure in self.samples}


def number(value: float | None) -> str:
    """Three digits are all that a benchmark can promise."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 3
    return f"{value:.{digits}f}"
