"""What a user would lose: a word about why a command goes on without doing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.group_reset import reset
from ottla.cli.options import OUTAGE_SILENCE_SECONDS, Outage, connect
from ottla.cli.reassign_file import read_plan_file
from ottla.client.errors import CannotConnectError, ClientError
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker


def test_an_outage_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    outage = Outage(lambda: now)
    for _ in range(5):
        outage.tell(CannotConnectError("cannot connect to kafka:9092"))
    assert capsys.readouterr().err.count("cannot connect to kafka:9092 (it has answered before") == 1
    now += OUTAGE_SILENCE_SECONDS
    outage.tell(CannotConnectError("cannot connect to kafka:9092"))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_command_whose_broker_has_gone_says_so_while_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedBroker() as broker:
        cluster = connect(broker.bootstrap)
        cluster.topic(TOPIC)
    assert capsys.readouterr().err == ""
    cluster.close()
    cluster.forget(TOPIC)
    with pytest.raises(ClientError):
        cluster.refresh((TOPIC,))
    assert broker.bootstrap in capsys.readouterr().err


def test_an_address_that_never_answered_is_an_error_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedBroker() as broker:
        address = broker.bootstrap
    with connect(address) as cluster, pytest.raises(CannotConnectError):
        cluster.topic(TOPIC)
    assert capsys.readouterr().err == ""


def test_a_file_that_cannot_be_read_is_a_wrong_command_line_and_names_its_option(tmp_path: Path) -> None:
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError, match="--from-file: cannot read"):
            read_plan_file(missing, "--from-file")
        with pytest.raises(UsageError, match="--from-file: cannot read"):
            reset("billing", from_file=missing)
