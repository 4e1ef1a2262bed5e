"""The options of a frame are found, whichever way its session holds its plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark.sql.connect.proto import Relation

from ottla.spark.source_options import options_of_source


def frame_of(relation: Relation) -> Any:
    """A frame as Spark Connect has it."""
    plan = SimpleNamespace(to_proto=lambda client: relation)
    return SimpleNamespace(_plan=plan, sparkSession=SimpleNamespace(client=None))


def source(format: str, **options: str) -> Relation:
    relation = Relation()
    relation.read.data_source.format = format
    for key, value in options.items():
        relation.read.data_source.options[key.replace("_", ".")] = value
    return relation


def test_the_source_of_a_connect_plan() -> None:
    relation = Relation()
    relation.join.left.filter.input.CopyFrom(source("parquet", kafka_bootstrap_servers="no"))
    relation.join.right.project.input.CopyFrom(source("ottla", kafka_bootstrap_servers="b:1", Subscribe="t"))
    assert options_of_source(frame_of(relation)) == {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}


def test_a_frame_without_topics() -> None:
    assert options_of_source(frame_of(source("parquet", path="p"))) == {}
    assert options_of_source(frame_of(source("ottla"))) == {}
