"""The small files are Kafka's, and what is not whole is not believed."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.log import checkpoints, names
from ottla.log.checkpoints import CorruptCheckpointError
from ottla.model.ids import TopicPartition
from tests.unit.log.crash_disk import CrashDisk


def disk_with(content: bytes | None = None) -> CrashDisk:
    disk = CrashDisk()
    disk.makedirs("/d")
    if content is not None:
        disk.open("/d/file", create=True).pwrite(content, 0)
    return disk


def test_offsets_are_kept_in_kafkas_format() -> None:
    disk = disk_with()
    offsets = {TopicPartition("orders", 0): 17, TopicPartition("a.b_c-d", 12): 2**40}
    checkpoints.write_offsets(disk, "/d/file", offsets)
    assert disk.read("/d/file") == b"0\n2\norders 0 17\na.b_c-d 12 1099511627776\n"
    assert checkpoints.read_offsets(disk, "/d/file") == offsets


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_no_file_or_an_empty_one_says_nothing(content: bytes | None) -> None:
    assert checkpoints.read_offsets(disk_with(content), "/d/file") == {}


@pytest.mark.parametrize(
    "content", [b"0", b"x\ny\n", b"7\n0\n", b"0\n2\norders 0 17\n", b"0\n1\norders 0\n", b"0\n1\norders 0 x\n", b"\xff"]
)
def test_half_a_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="/d/file"):
        checkpoints.read_offsets(disk_with(content), "/d/file")


def test_the_topic_id_of_a_partition_is_kafkas() -> None:
    topic_id = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
    content = checkpoints.encode_topic_id(topic_id)
    assert content == b"version: 0\ntopic_id: EjRWeJCrze8SNFZ4kKvN7w\n"
    assert checkpoints.read_topic_id(disk_with(content), "/d/file") == topic_id
    assert checkpoints.read_topic_id(disk_with(b""), "/d/file") is None
    assert checkpoints.read_topic_id(disk_with(), "/d/file") is None
    with pytest.raises(CorruptCheckpointError):
        checkpoints.read_topic_id(disk_with(b"version: 0\ntopic_id: xyz\n"), "/d/file")


def test_a_properties_file_of_kafka_is_read() -> None:
    text = b"#\n#Sat Nov 15 21:47:00 UTC 2025\ncluster.id=abc\nversion = 1\n\nnode.id=7\n"
    found = checkpoints.read_properties(disk_with(text), "/d/file")
    assert found == {"cluster.id": "abc", "version": "1", "node.id": "7"}
    assert checkpoints.encode_properties({"a": "1", "b": "2"}) == b"a=1\nb=2\n"


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", None),
        ("orders-0.0123456789abcdef0123456789abcdef-future", None),
        ("orders", None),
        ("meta.properties", None),
        ("orders--1", TopicPartition("orders-", 1)),
    ],
)
def test_partitions_are_found_by_the_names_of_their_directories(name: str, partition: TopicPartition | None) -> None:
    assert names.parse_partition_name(name) == partition


def test_the_longest_topic_name_can_be_deleted() -> None:
    name = names.deletion_name("t" * 249 + "-99999", "0" * 32)
    assert len(name) == 255
    assert name.endswith("." + "0" * 32 + "-delete")
    assert names.deletion_name("orders-1", "f" * 32) == "orders-1." + "f" * 32 + "-delete"
