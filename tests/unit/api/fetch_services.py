"""What the Fetch handler sees of a broker that hosts its topics inside a test, and its answers as bytes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

from ottla.api.context import Services
from ottla.core.controller.image import MetadataImage
from ottla.model.chunks import Chunks, FileSlice
from ottla.runtime.fetch_sessions import FetchSessions
from tests.unit.runtime.hosted import Hosted


def fetch_services(hosted: Hosted) -> Services:
    return cast(
        Services,
        SimpleNamespace(
            config=hosted.config,
            fetches=hosted.fetches(),
            partitions=hosted.table,
            sessions=FetchSessions(1, random.Random(1)),
            world=hosted.world,
            image=MetadataImage(cluster_id="c"),
        ),
    )


def joined(chunks: Chunks) -> memoryview:
    """An answer as a client receives it, without the size in front."""
    parts = [c.file.pread(c.length, c.position) if isinstance(c, FileSlice) else bytes(c) for c in chunks]
    return memoryview(b"".join(parts))
