"""Feature levels: which updates are refused, in Kafka's words, and what a level does to partitions and brokers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.core.controller.builder import apply
from ottla.core.controller.commands import FeatureUpdate, NewTopic, Outcome, UpdateFeatures
from ottla.core.controller.feature_levels import ELR_VERSION, GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from ottla.core.controller.features import REGISTERED_FEATURES, bootstrap_records, opening_records
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import NO_LEADER, AbortTransactionRecord, FeatureLevelRecord, SupportedFeature
from ottla.core.controller.snapshot import snapshot_records
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import EMPTY, Cluster

UP, SAFE_DOWN, UNSAFE_DOWN = 1, 2, 3
OLDER: Sequence[SupportedFeature] = REGISTERED_FEATURES[:2]
"""What a broker says that is older than `group.version` and `eligible.leader.replicas.version`."""
PREFIX = "The update failed for all features since the following feature had an error: "


def founded(cluster: Cluster) -> Cluster:
    """With the levels that a new cluster begins with."""
    records = bootstrap_records(BrokerConfig.from_properties({}))
    cluster.log += records
    cluster.controller.image, _ = apply(cluster.image, records, offset=len(cluster.log) - 1, epoch=0)
    return cluster


def minimum(cluster: Cluster) -> str | None:
    return cluster.image.configs_of(ResourceType.BROKER, "").get("min.insync.replicas")


def test_a_new_cluster_has_one_minimum_of_in_sync_replicas_whatever_the_files_of_its_brokers_say() -> None:
    records = bootstrap_records(BrokerConfig.from_properties({"min.insync.replicas": "2"}))
    image, _ = apply(EMPTY, records, offset=len(records) - 1, epoch=0)
    assert image.configs_of(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}
    assert image.feature_level(ELR_VERSION) == 1


def test_a_log_that_was_kafkas_goes_on_without_what_is_not_here() -> None:
    config = BrokerConfig.from_properties({})
    levels = {"metadata.version": 30, "share.version": 1, "streams.version": 0, "group.version": 1}
    image = MetadataImage(features=levels)
    off = FeatureLevelRecord(name="share.version", feature_level=0)
    assert opening_records(image, config, is_in_transaction=False) == [off]
    assert opening_records(founded(Cluster()).image, config, is_in_transaction=False) == []


def test_a_transaction_that_another_controller_left_open_is_aborted_first() -> None:
    config = BrokerConfig.from_properties({})
    [abort, *rest] = opening_records(EMPTY, config, is_in_transaction=True)
    assert isinstance(abort, AbortTransactionRecord)
    assert rest == bootstrap_records(config)
    founded_before = founded(Cluster()).image
    assert [type(each) for each in opening_records(founded_before, config, is_in_transaction=True)] == [type(abort)]


def test_the_elr_brings_one_minimum_of_in_sync_replicas_and_keeps_the_one_that_was_set() -> None:
    cluster = Cluster(config={"min.insync.replicas": "2"})
    update(cluster, ELR_VERSION, 0, SAFE_DOWN)
    assert minimum(cluster) is None
    update(cluster, ELR_VERSION, 1)
    assert minimum(cluster) == "2"
    assert cluster.replayed() == cluster.image

    founded_before = founded(Cluster(config={"min.insync.replicas": "3"}))
    update(founded_before, ELR_VERSION, 0, SAFE_DOWN)
    update(founded_before, ELR_VERSION, 1)
    assert minimum(founded_before) == "1"


def update(cluster: Cluster, name: str, level: int, kind: int = UP, *, validate_only: bool = False) -> Outcome:
    return cluster.submit(UpdateFeatures([FeatureUpdate(name, level, kind)], validate_only))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("nope", 1, UP), "Local controller 1 does not support this feature."),
        (("nope", 0, UP), "Feature nope not found."),
        (("nope", 0, SAFE_DOWN), "Feature nope not found."),
        (("nope", -1, SAFE_DOWN), "A feature version cannot be less than 0."),
        (("share.version", 1, UP), "Local controller 1 does not support this feature."),
        (("streams.version", 1, UP), "Local controller 1 does not support this feature."),
        (("group.version", 2, UP), "Local controller 1 only supports versions 0-1"),
        (("group.version", 2, 0), "The controller does not support the given upgrade type."),
        (("group.version", -1, UP), "A feature version cannot be less than 0."),
        (
            ("group.version", 0, UP),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        (("transaction.version", 3, SAFE_DOWN), "Local controller 1 only supports versions 0-2"),
        (("eligible.leader.replicas.version", 2, UP), "Local controller 1 only supports versions 0-1"),
        (("kraft.version", 2, UP), "Local controller 1 only supports versions 0-1"),
        (("kraft.version", 0, SAFE_DOWN), "Can't downgrade the version of this feature."),
        (("metadata.version", 31, UP), "Local controller 1 only supports versions 7-30"),
        (("metadata.version", 30, 9), "The controller does not support the given upgrade type."),
    ],
    ids=str,
)
def test_a_level_that_cannot_be_is_refused_in_kafkas_words(asked: tuple[str, int, int], words: str) -> None:
    cluster = founded(Cluster())
    before = cluster.image
    outcome = update(cluster, *asked)
    assert outcome.code is ErrorCode.INVALID_UPDATE_VERSION
    assert outcome.message == f"{PREFIX}Invalid update version {asked[1]} for feature {asked[0]}. {words}"
    assert update(cluster, *asked, validate_only=True) == outcome
    assert cluster.image == before


def test_what_was_disabled_is_not_downgraded_to_a_higher_level() -> None:
    cluster = founded(Cluster())
    update(cluster, GROUP_VERSION, 0, SAFE_DOWN)
    outcome = update(cluster, GROUP_VERSION, 1, SAFE_DOWN)
    assert outcome.code is ErrorCode.INVALID_UPDATE_VERSION
    assert outcome.message is not None
    assert outcome.message.endswith("Can't downgrade to a newer version.")


@pytest.mark.parametrize("kind", [SAFE_DOWN, UNSAFE_DOWN])
def test_records_of_the_metadata_are_not_taken_back(kind: int) -> None:
    assert update(founded(Cluster()), METADATA_VERSION, 29, kind).message == (
        f"{PREFIX}Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade "
        "because it might delete metadata information."
    )


def test_of_several_updates_all_happen_or_none_and_who_asks_for_a_release_hears_what_there_is() -> None:
    cluster = founded(Cluster())
    before = cluster.image
    release = [("metadata.version", 30), ("kraft.version", 1), ("group.version", 1), ("transaction.version", 2)]
    others = [("share.version", 1), ("streams.version", 1), ("eligible.leader.replicas.version", 1)]
    outcome = cluster.submit(UpdateFeatures([FeatureUpdate(name, level) for name, level in (*release, *others)]))
    assert outcome.code is ErrorCode.INVALID_UPDATE_VERSION
    assert outcome.message == (
        "The update failed for all features since the following features had errors: "
        "Invalid update version 1 for feature share.version. Local controller 1 does not support this feature. "
        "Invalid update version 1 for feature streams.version. Local controller 1 does not support this feature. "
        "Nothing was changed, because there are no share groups and no streams groups here. Ask for "
        "metadata.version=30, kraft.version=1, group.version=1, transaction.version=2, "
        "eligible.leader.replicas.version=1 alone."
    )
    assert cluster.image == before
    accepted = [FeatureUpdate(name, level) for name, level in (*release, others[-1])]
    assert cluster.submit(UpdateFeatures(accepted)).code is ErrorCode.NONE
    assert cluster.image == before


@pytest.mark.parametrize(("name", "highest"), [(GROUP_VERSION, 1), (TRANSACTION_VERSION, 2), (ELR_VERSION, 1)])
def test_a_level_goes_down_and_up_and_is_remembered(name: str, highest: int) -> None:
    cluster = founded(Cluster())
    assert update(cluster, name, 0, SAFE_DOWN, validate_only=True).code is ErrorCode.NONE
    assert cluster.image.feature_level(name) == highest
    assert update(cluster, name, 0, SAFE_DOWN).code is ErrorCode.NONE
    assert cluster.image.feature_level(name) == 0
    assert cluster.replayed().feature_level(name) == 0
    assert from_snapshot(cluster.image).feature_level(name) == 0
    assert update(cluster, name, highest).code is ErrorCode.NONE
    assert cluster.image.feature_level(name) == highest


def from_snapshot(image: MetadataImage) -> MetadataImage:
    return apply(EMPTY, list(snapshot_records(image)), offset=image.offset, epoch=image.epoch)[0]


def test_a_feature_that_is_off_and_unknown_here_may_be_switched_off() -> None:
    cluster = founded(Cluster())
    assert update(cluster, "share.version", 0, SAFE_DOWN).code is ErrorCode.NONE
    assert "share.version" not in cluster.image.features


# -- levels that no record says


def test_a_log_that_is_older_than_a_feature_has_the_level_that_its_brokers_had() -> None:
    cluster = Cluster()
    cluster.log += [FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)]
    image = cluster.replayed()
    assert (image.feature_level(GROUP_VERSION), image.feature_level(ELR_VERSION)) == (1, 1)
    assert (image.feature_level(TRANSACTION_VERSION), image.feature_level("share.version")) == (0, 0)


def test_an_implied_level_is_recorded_when_it_is_asked_for() -> None:
    cluster = Cluster()
    assert update(cluster, GROUP_VERSION, 1).code is ErrorCode.NONE
    assert dict(cluster.image.features) == {GROUP_VERSION: 1}


# -- brokers that cannot follow


def test_no_level_that_a_registered_broker_does_not_support() -> None:
    cluster = founded(Cluster())
    cluster.register(2, features=OLDER, fenced=True)
    for name in (GROUP_VERSION, ELR_VERSION):
        outcome = update(cluster, name, 0, SAFE_DOWN)
        assert outcome.message == (
            f"{PREFIX}Invalid update version 0 for feature {name}. Broker 2 only supports versions 1-1"
        )
        assert update(cluster, name, 1).code is ErrorCode.NONE
    ahead = cluster.register(2)
    assert ahead
    assert update(cluster, GROUP_VERSION, 0, SAFE_DOWN).code is ErrorCode.NONE


def test_a_broker_that_cannot_follow_a_level_is_not_registered() -> None:
    cluster = founded(Cluster())
    cluster.register(2, features=OLDER)
    cluster.register(2)
    update(cluster, GROUP_VERSION, 0, SAFE_DOWN)
    with pytest.raises(ApiError) as refused:
        cluster.register(3, features=OLDER)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "finalized version 0 of group.version" in refused.value.message
    with pytest.raises(ApiError) as refused:
        cluster.register(3, features=())
    assert "finalized version 30 of metadata.version" in refused.value.message


# -- what the ELR's level does


def without_leader(level: int) -> Cluster:
    """Of the three replicas of a partition 1 was alone in sync, and is gone."""
    cluster = founded(Cluster(brokers=3, config={"min.insync.replicas": "2"}))
    update(cluster, ELR_VERSION, level, UP if level else SAFE_DOWN)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2, 3])]))
    for broker_id in (2, 3, 1):
        cluster.fence(broker_id)
    return cluster


def test_without_an_elr_only_the_last_in_sync_comes_back_as_leader() -> None:
    cluster = without_leader(0)
    state = cluster.partition()
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (NO_LEADER, (1,), (), ())
    cluster.heartbeat(3)
    assert cluster.partition().leader == NO_LEADER
    cluster.heartbeat(1)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert cluster.partition().leader_recovery_state == 0


def test_with_an_elr_whoever_is_eligible_leads() -> None:
    cluster = without_leader(1)
    cluster.heartbeat(3)
    assert cluster.partition().leader == 3


def test_who_was_eligible_may_still_lead_when_the_elr_is_switched_off() -> None:
    cluster = without_leader(1)
    assert sorted(cluster.partition().elr) == [1, 3]
    update(cluster, ELR_VERSION, 0, SAFE_DOWN)
    state = cluster.partition()
    assert (state.leader, sorted(state.isr), state.elr, state.last_known_elr) == (NO_LEADER, [1, 3], (), ())
    cluster.heartbeat(3)
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))


def test_who_is_waited_for_is_eligible_when_the_elr_is_switched_on() -> None:
    cluster = without_leader(0)
    update(cluster, ELR_VERSION, 1)
    assert (cluster.partition().isr, cluster.partition().elr) == ((), (1,))
    cluster.heartbeat(1)
    assert cluster.partition().leader == 1
