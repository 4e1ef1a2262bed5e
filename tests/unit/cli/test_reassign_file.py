"""Plans are read as Kafka's tool writes them, and mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.reassign_file import parse_plan, plan_text, read_plan_file
from ottla.cli.replica_plan import Move
from ottla.model.ids import TopicPartition


def test_what_is_written_is_read(tmp_path: Path) -> None:
    moves = [Move(TopicPartition("t", 0), (1, 2), (2, 3)), Move(TopicPartition("t", 1), (1,), (1, 3, 2))]
    file = tmp_path / "plan.json"
    file.write_text(plan_text(moves))
    assert read_plan_file(file, "--from-file") == {move.partition: move.after for move in moves}


def test_the_directories_that_kafka_adds_are_passed_over() -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert parse_plan(json.dumps({"version": 1, "partitions": [entry]}).encode()) == {TopicPartition("t", 0): (1, 2)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no list of partitions"),
        ('{"partitions": {}}', "no list of partitions"),
        ('{"partitions": []}', "empty"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": [1]}', "1 is no partition"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "no partition"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "replicas of t-0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "replicas of t-0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "replicas of t-0"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 is there twice",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=said) as refused:
        read_plan_file(file, "--from-file")
    assert "--from-file" in str(refused.value)
