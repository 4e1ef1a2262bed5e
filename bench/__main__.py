"""python -m bench [--quick] [--only produce,fetch] [--ottla PROGRAM] [--page PATH]"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
from pathlib import Path

from bench import page
from bench.floors import broken, judged
from bench.harness import ROOT, ROUNDS, Harness
from bench.results import Results
from bench.sections import SECTIONS
from bench.systems import Kafka, Ottla, System
from bench.tools import Tools, cache_directory, find_tools

PAGE = ROOT / "docs" / "benchmarks.md"
OTTLA = str(Path(sys.executable).parent / "ottla")
PARTIAL_PAGE = ROOT / ".bench" / "benchmarks.md"


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_open_files_limit()
    tools = find_tools()
    systems: list[System] = [Ottla(options.ottla)]
    if tools.kafka_jars is None:
        print(f"Apache Kafka is not measured: {tools.kafka_missing}", file=sys.stderr)
    else:
        systems.insert(0, Kafka(tools))
    harness = Harness(tools, systems, cache_directory() / f"run-{os.getpid()}", options.quick, options.minutes * 60)
    try:
        measure(harness, options.only)
    finally:
        harness.close()
    write_page(harness, tools, options)
    return verdict(harness.results)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Ottla beside Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="one round of shorter loads; says little, soon")
    parser.add_argument("--only", type=sections, default=list(SECTIONS), help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--ottla", default=OTTLA, help="the program to measure")
    parser.add_argument("--minutes", type=float, default=60, help="nothing new is begun after so long (%(default)s)")
    parser.add_argument("--page", type=Path, help="where to write; a partial run does not replace docs/benchmarks.md")
    return parser.parse_args()


def sections(text: str) -> list[str]:
    names = text.split(",")
    unknown = set(names) - set(SECTIONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return [name for name in SECTIONS if name in names]


def raise_open_files_limit() -> None:
    """Ten thousand connections and ten thousand partitions want descriptors; children inherit the limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure(harness: Harness, names: list[str]) -> None:
    for name in names:
        harness.say(f"== {name}")
        SECTIONS[name].run(harness)


def write_page(harness: Harness, tools: Tools, options: argparse.Namespace) -> None:
    whole = not options.quick and options.only == list(SECTIONS) and options.ottla == OTTLA
    path = options.page or (PAGE if whole else PARTIAL_PAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.write(path, harness.results, tools, 1 if harness.quick else ROUNDS)
    print(f"written: {path}", file=sys.stderr)


def verdict(results: Results) -> int:
    """The table, then the floors; the exit code."""
    head = ["measure", "unit", "better", "kafka", "ottla", "ratio", "floor"]
    rows = [head, *(page.row(found, results) for found in results.samples)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    failures = broken(results)
    for failure in failures:
        print(f"floor fails: {failure}")
    counted = [verdict.value for _floor, verdict in judged(results)]
    print(", ".join(f"{counted.count(word)} {word}" for word in sorted(set(counted))) or "no floor was judged")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
