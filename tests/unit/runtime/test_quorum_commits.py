"""What is committed is applied, then told, then answered; and whoever waits hears of it in any case."""

from __future__ import annotations

import asyncio

import pytest

from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.records import BeginTransactionRecord, EndTransactionRecord, FeatureLevelRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.quorum_commits import Commits
from ottla.runtime.quorum_records import LoggedBatch


def batch(offset: int, level: int) -> LoggedBatch:
    return LoggedBatch(offset, offset, 1, 100, [FeatureLevelRecord(name="metadata.version", feature_level=level)])


def test_the_image_is_told_before_the_writer() -> None:
    async def scenario() -> None:
        commits = Commits(MetadataImage())
        order: list[str] = []
        commits.subscribe(lambda image, delta: order.append(f"told {image.features['metadata.version']}"))
        commits.add(batch(0, 10))
        first = commits.wait_for(0)
        first.add_done_callback(lambda _: order.append("answered"))
        commits.add(batch(1, 20))
        second = commits.wait_for(1)
        commits.advance(1)
        await asyncio.sleep(0)
        assert first.result() == 0
        assert order == ["told 10", "answered"]
        assert not second.done()
        assert commits.last_waiter is second
        commits.advance(2)
        assert await second == 1
        assert (commits.image.offset, commits.bytes_committed) == (1, 200)
        commits.advance(2)
        assert order == ["told 10", "answered", "told 20"], "nothing new, nobody told"

    asyncio.run(scenario())


def test_what_is_cut_off_is_never_applied() -> None:
    commits = Commits(MetadataImage(), [batch(0, 10), batch(1, 20), batch(2, 30)])
    commits.truncate(1)
    commits.advance(3)
    assert commits.image.features == {"metadata.version": 10}


def test_a_transaction_is_told_once_it_has_ended() -> None:
    commits, told = Commits(MetadataImage()), list[dict[str, int]]()
    commits.subscribe(lambda image, delta: told.append(dict(image.features)))
    ended = EndTransactionRecord()
    commits.add(batch(0, 10)._replace(records=[BeginTransactionRecord(), *batch(0, 10).records]))
    commits.add(batch(1, 20)._replace(records=[ended]))
    commits.advance(1)
    assert (told, commits.image.offset, commits.is_in_transaction) == ([{}], 0, True)
    commits.advance(2)
    assert (told[1:], commits.image.offset, commits.is_in_transaction) == ([{"metadata.version": 10}], 1, False)


def test_a_snapshot_knows_of_no_open_transaction() -> None:
    commits = Commits(MetadataImage(), [batch(0, 10)._replace(records=[BeginTransactionRecord()])])
    commits.advance(1)
    commits.restart(MetadataImage(offset=7))
    commits.add(batch(8, 20))
    commits.advance(9)
    assert commits.image.features == {"metadata.version": 20}


def test_writers_hear_that_nobody_will_tell_them() -> None:
    async def scenario() -> None:
        commits = Commits(MetadataImage())
        waiting = [commits.wait_for(0), commits.wait_for(1)]
        waiting[0].cancel()
        commits.fail(ApiError(ErrorCode.NOT_CONTROLLER, "gone"))
        with pytest.raises(ApiError):
            await waiting[1]
        assert commits.last_waiter is None

    asyncio.run(scenario())


def test_a_snapshot_takes_the_place_of_everything() -> None:
    seen: list[ImageDelta] = []
    before = Commits(MetadataImage())
    before.subscribe(lambda image, delta: seen.append(delta))
    commits = Commits(MetadataImage(), [batch(0, 10)])
    commits.take_subscribers(before)
    image = MetadataImage(features={"metadata.version": 30}, offset=9)
    commits.restart(image)
    assert commits.image is image
    assert [delta.features_changed for delta in seen] == [True]
    commits.advance(5)
    assert commits.image is image, "the batches before it are gone"
