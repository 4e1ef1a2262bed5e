"""The architecture: who may import whom."""

from __future__ import annotations

import pytest

from tests.tidy.layers import check_layers
from tests.tidy.sources import Source, report, shipped_sources


def test_imports_keep_to_the_layers() -> None:
    found = [violation for source in shipped_sources() for violation in check_layers(source)]
    assert not found, report(found)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/ottla/model/ids.py", "import ottla.wire"),
        ("src/ottla/wire/crc.py", "from ottla.log import segment"),
        ("src/ottla/log/segment.py", "from ottla.wire.fetch import parse"),
        ("src/ottla/log/segment.py", "from ottla.wire import fetch"),
        ("src/ottla/core/controller/controller.py", "from ottla.wire.messages import create_topics"),
        ("src/ottla/core/controller/controller.py", "def later():\n    from ottla.runtime import world"),
        ("src/ottla/core/controller/controller.py", "from ...runtime import world"),
        ("src/ottla/client/admin.py", "from ottla.api import table"),
        ("src/ottla/server/listener.py", "from ottla.log import partition_log"),
        ("src/ottla/api/fetch.py", "from ottla.log.partition_log import PartitionLog"),
        ("src/ottla/api/fetch.py", "from ottla.server import connection"),
        ("src/ottla/wire/schema.py", "from kio.serial import entity_reader"),
        ("src/ottla/log/compaction.py", "import numba"),
        ("src/ottla/newcomer/thing.py", "x = 1"),
        ("src/ottla/__init__.py", "from ottla.server import listener"),
    ],
)
def test_a_forbidden_import_is_found(path: str, code: str) -> None:
    assert list(check_layers(Source.parse(path, code)))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/ottla/log/segment.py", "from ottla.wire.batch import read_header\nfrom ottla.wire import crc"),
        ("src/ottla/log/segment.py", "from . import index\nfrom ottla.log.disk import Disk"),
        ("src/ottla/wire/messages/fetch.py", "from ottla.wire.schema import Message\nimport numpy"),
        ("src/ottla/broker.py", "from ottla.server import listener\nfrom ottla.log import disk"),
        ("src/ottla/api/fetch.py", "if TYPE_CHECKING:\n    from ottla.log.partition_log import PartitionLog"),
        ("src/ottla/cli/version.py", "from ottla import __version__"),
    ],
)
def test_an_allowed_import_passes(path: str, code: str) -> None:
    found = list(check_layers(Source.parse(path, code)))
    assert not found, report(found)


def test_a_violation_names_file_line_and_rule() -> None:
    (found,) = check_layers(Source.parse("src/ottla/model/ids.py", "x = 1\nimport ottla.wire\n"))
    assert str(found).startswith("src/ottla/model/ids.py:2: ottla.model may not import ottla.wire")
