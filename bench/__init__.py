"""Ottla beside Apache Kafka: one section per claim, both systems in one run, in turns.

`python -m bench` (or `make bench`) starts both, loads them with the same clients, prints the ratios last and writes
docs/benchmarks.md. It ends with a failure when a floor of `floors.py` does not hold. Not shipped.
"""
