"""DescribeLogDirs 1-5: the log directories, what lies in them and how much room is left.

Every log that is asked for is opened to know its size, a few at a time so that nobody else waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode, OttlaError
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext, Services
    from ottla.log.directory import LogDirectory
    from ottla.runtime.partition import Partition

LOGS_PER_TURN = 8


async def handle(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    services = ctx.services
    sizes = await _sizes(services, request)
    results = []
    for directory in services.log_directories.online:
        if directory.online:
            results.append(await _describe(services, directory, sizes.get(directory, {})))
        else:
            results.append(DescribeLogDirsResult(log_dir=directory.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    for path in services.log_directories.unopened:
        results.append(DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    return DescribeLogDirsResponse(results=results)


async def _describe(
    services: Services, directory: LogDirectory, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    try:
        total = await services.world.offload.run(directory.total_bytes)
        usable = await services.world.offload.run(directory.free_bytes)
    except OSError:
        return DescribeLogDirsResult(log_dir=directory.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
    )


async def _sizes(
    services: Services, request: DescribeLogDirsRequest
) -> dict[LogDirectory, dict[str, list[DescribeLogDirsPartition]]]:
    sizes: dict[LogDirectory, dict[str, list[DescribeLogDirsPartition]]] = {}
    for number, partition in enumerate(_wanted(services, request)):
        if number % LOGS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            size = partition.log.size_bytes
        except OttlaError:
            continue
        directory = services.log_directories.directory_of(partition.topic_partition)
        if directory is not None:
            item = DescribeLogDirsPartition(partition_index=partition.index, partition_size=size)
            sizes.setdefault(directory, {}).setdefault(partition.topic, []).append(item)
    return sizes


def _wanted(services: Services, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(services.partitions)
    wanted = []
    for topic in request.topics:
        for index in topic.partitions:
            try:
                wanted.append(services.partitions.hosted(topic.topic, index))
            except OttlaError:
                continue  # What is not here is left out, as Kafka does.
    return wanted
