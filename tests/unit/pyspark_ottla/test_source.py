"""What Spark finds, and what it costs to find it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pyspark_ottla
from pyspark_ottla.options import OptionError
from pyspark_ottla.pushdown import FilteringReader
from pyspark_ottla.reader import BatchReader
from pyspark_ottla.source import DefaultSource
from tests.unit.pyspark_ottla.tables import schema_of

GIVEN = {"kafka.bootstrap.servers": "h", "subscribe": "t"}


def test_the_import_costs_nothing() -> None:
    code = (
        "import sys, pyspark_ottla; "
        "print([name for name in ('numpy', 'numba', 'pyarrow', 'pyspark', 'ottla.client') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
    assert pyspark_ottla.DefaultSource is DefaultSource
    with pytest.raises(AttributeError, match="nonsense"):
        pyspark_ottla.nonsense  # noqa: B018


def test_the_source() -> None:
    assert DefaultSource.name() == "ottla"
    assert "headers" not in DefaultSource(GIVEN).schema()
    assert "headers" in DefaultSource({**GIVEN, "includeheaders": "true"}).schema()
    assert type(DefaultSource(GIVEN).reader(schema_of("value"))) is BatchReader
    assert type(DefaultSource({**GIVEN, "pushdown": "true"}).reader(schema_of("value"))) is FilteringReader


def test_a_topic_cannot_be_overwritten() -> None:
    given = {"kafka.bootstrap.servers": "h", "topic": "t"}
    with pytest.raises(OptionError, match="use mode append"):
        DefaultSource(given).writer(schema_of("value"), overwrite=True)
