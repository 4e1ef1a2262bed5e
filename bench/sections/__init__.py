"""One module per claim: what is measured, how, and what the page says about it.

A section has a `TITLE`, an `ABOUT` for the page, and `run(harness)`.
"""

from __future__ import annotations

from types import ModuleType

from bench.sections import cluster, cpu, e2e, fetch, groups, idle, produce, requests, spark, startup, transactions

SECTIONS: dict[str, ModuleType] = {
    "startup": startup,
    "produce": produce,
    "requests": requests,
    "fetch": fetch,
    "e2e": e2e,
    "cpu": cpu,
    "transactions": transactions,
    "groups": groups,
    "idle": idle,
    "cluster": cluster,
    "spark": spark,
}
