"""`TOPIC:0,1` means those partitions, and nothing else means anything."""

from __future__ import annotations

import pytest

from ottla.cli.failures import CommandError, UsageError
from ottla.cli.partition_choice import PartitionChoice, chosen_partitions, parse_choice
from ottla.client.cluster import Cluster
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker


@pytest.mark.parametrize(
    ("text", "choice"),
    [("orders", PartitionChoice("orders", None)), ("orders:2,0, 2", PartitionChoice("orders", (0, 2)))],
)
def test_a_choice_is_read(text: str, choice: PartitionChoice) -> None:
    assert parse_choice(text) == choice


@pytest.mark.parametrize("text", ["", ":0", "orders:", "orders:a", "orders:-1", "orders:1,,2", "orders:99999999999"])
def test_what_is_no_choice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--topic"):
        parse_choice(text)


def test_choices_are_looked_up() -> None:
    with ScriptedBroker(partitions=3) as broker, Cluster(broker.settings()) as cluster:
        found = chosen_partitions(cluster, [parse_choice(f"{TOPIC}:2"), parse_choice(TOPIC)])
        assert [partition.partition for partition in found] == [0, 1, 2]
        with pytest.raises(CommandError, match="no partition 3"):
            chosen_partitions(cluster, [parse_choice(f"{TOPIC}:3")])
