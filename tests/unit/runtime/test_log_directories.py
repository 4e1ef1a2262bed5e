"""The directories that a broker takes, and those that it must leave alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.cli.cluster_plan import plan_cluster
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import StorageError
from ottla.runtime.log_directories import LogDirectories
from ottla.runtime.world import SystemClock, Threads, World


def opened(path: Path) -> LogDirectories:
    config = BrokerConfig.from_properties({"log.dirs": str(path)})
    world = World(clock=SystemClock(), offload=Threads(), disk=RealDisk(), rng=random.Random(1))
    directories = LogDirectories(world, OpenFiles(world.disk), config.producer_id_expiration_ms)
    directories.open(config)
    return directories


def test_one_broker_does_not_set_the_brokers_of_a_cluster_aside(tmp_path: Path) -> None:
    planned = plan_cluster(str(tmp_path), 3, None, None, {})
    for broker in planned:
        Path(broker.data).mkdir()
    with pytest.raises(StorageError, match="--brokers"):
        opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broker-1",
        "broker-2",
        "broker-3",
        "cluster.properties",
    ]
    opened(Path(planned[0].data)).close()


def test_a_file_in_place_of_the_directory_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("")
    with pytest.raises(StorageError, match="is a file: name a directory"):
        opened(file)


@pytest.mark.parametrize("left", [None, "", "garbage\n"])
def test_data_whose_owner_is_not_known_any_more_is_not_taken_over(tmp_path: Path, left: str | None) -> None:
    """A broker that made up a new identity would wait for ever for the voters that its metadata names."""
    opened(tmp_path).close()
    (tmp_path / "__cluster_metadata-0").mkdir()
    identity = tmp_path / "meta.properties"
    identity.unlink()
    if left is not None:
        identity.write_text(left)
    with pytest.raises(StorageError, match=r"meta\.properties"):
        opened(tmp_path)
    assert (identity.read_text() if identity.exists() else None) == left
