"""Lag is what is left, and a group is shown whatever has become of its topics."""

from __future__ import annotations

from ottla.cli.group_description import GroupPicture, PartitionProgress, assignment_text
from ottla.client.group_descriptions import GroupDescription, GroupMember, GroupType
from ottla.model.ids import TopicPartition

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
MEMBER = GroupMember(
    member_id="m", instance_id=None, client_id="c", host="h", assigned=PARTITIONS[:2], target=PARTITIONS, epoch=2
)


def picture() -> GroupPicture:
    group = GroupDescription(
        group_id="g",
        type=GroupType.CONSUMER,
        state="Reconciling",
        coordinator=1,
        protocol_type="consumer",
        assignor="uniform",
        members=(MEMBER,),
        epoch=3,
        assignment_epoch=3,
    )
    progress = (
        PartitionProgress(partition=PARTITIONS[0], committed=5, end=12, owner=MEMBER),
        PartitionProgress(partition=PARTITIONS[1], committed=None, end=4, owner=MEMBER),
        PartitionProgress(partition=PARTITIONS[2], committed=9, end=None, owner=None, metadata="note"),
    )
    return GroupPicture(group=group, coordinator="broker 1", progress=progress)


def test_lag_is_known_where_both_ends_are() -> None:
    shown = picture()
    assert [entry.lag for entry in shown.progress] == [7, None, None]
    assert shown.state()["lag"] == 7
    assert PartitionProgress(partition=PARTITIONS[0], committed=9, end=8, owner=None).lag == 0


def test_rows_name_the_owner() -> None:
    first, _, last = picture().offset_rows()
    assert (first["member"], first["host"], last["member"]) == ("m", "h", None)


def test_a_target_is_shown_while_it_is_not_reached() -> None:
    (row,) = picture().member_rows()
    assert (row["assignment"], row["target"]) == ("t:0,1", "t:0,1 u:0")
    assert assignment_text(()) == ""


def test_json_has_everything() -> None:
    shown = picture().as_json()
    assert (shown["assignment_epoch"], shown["coordinator"], shown["protocol_type"]) == (3, 1, "consumer")
    assert isinstance(shown["offsets"], list)
    assert shown["offsets"][2]["metadata"] == "note"
    assert isinstance(shown["members"], list)
    assert shown["members"][0]["target"][2] == {"topic": "u", "partition": 0}
