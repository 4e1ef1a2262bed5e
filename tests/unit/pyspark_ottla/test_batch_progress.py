"""What the cluster knows of a query's batches; `test_stream_writer.py` tells the story that it is for."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from ottla.client.cluster import Cluster
from ottla.model.ids import TopicPartition
from pyspark_ottla.batch_progress import NO_DECISION, TRANSACTIONS_PER_SHARD, BatchProgress, Decision, Producer

METADATA_CHARACTERS_MAX = 4096


@pytest.fixture
def progress(cluster: Cluster) -> BatchProgress:
    return BatchProgress(cluster, "p", str(uuid.uuid4()))


def test_nothing_is_known_of_a_new_query(progress: BatchProgress) -> None:
    assert progress.decision() == NO_DECISION
    assert progress.committed_batch(0) == -1


def test_decisions_follow_each_other_whatever_topic_carries_them(
    progress: BatchProgress, new_topic: Callable[..., str]
) -> None:
    first, second = TopicPartition(new_topic(), 0), TopicPartition(new_topic(), 0)
    for decision, producers in (
        (Decision(0, 2, first), {0: Producer(7, 1), 1: Producer(8, 0)}),
        (Decision(1, 3, second), {1: Producer(8, 2)}),
        (Decision(2, 1, first), {0: Producer(7, 4)}),
    ):
        progress.decide(decision, producers)
        assert progress.decision() == decision
        assert progress.all_decided(decision) == producers
        assert [progress.decided(decision, place) for place in (0, 1)] == [producers.get(0), producers.get(1)]


def test_shards_without_their_decision_decide_nothing(
    progress: BatchProgress, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = TopicPartition(new_topic(), 0)
    note = progress._note

    def dies(group_id: str, decision: Decision, metadata: str) -> None:
        if "decision" not in group_id:
            raise KeyboardInterrupt
        note(group_id, decision, metadata)

    monkeypatch.setattr(progress, "_note", dies)
    with pytest.raises(KeyboardInterrupt):
        progress.decide(Decision(0, 1, anchor), {0: Producer(7, 1)})
    assert progress.decision() == NO_DECISION


def test_the_longest_shard_fits_the_metadata_of_an_offset() -> None:
    longest = f"{2**63 - 1}:{2**15 - 1}"
    assert len(",".join([longest] * TRANSACTIONS_PER_SHARD)) <= METADATA_CHARACTERS_MAX


def test_ids_and_groups_name_the_query(cluster: Cluster) -> None:
    progress = BatchProgress(cluster, "p", "q")
    assert progress.transactional_id(3) == progress.progress_group(3) == "p-q-3"
