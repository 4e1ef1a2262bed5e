"""Ctrl-C ends the input of a command and nothing else; a second one ends the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ottla.cli.interrupts import InputInterruptedError, Interrupts


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_input_is_read_as_ever(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.write(writer, b"line\n")
    with Interrupts() as interrupts:
        assert interrupts.read(reader, 100) == b"line\n"


def test_an_interrupt_outside_of_a_read_waits_for_the_next_one_and_takes_no_input(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    with Interrupts() as interrupts:
        interrupt()
        os.write(writer, b"typed before\n")
        with pytest.raises(InputInterruptedError):
            interrupts.read(reader, 100)
        with pytest.raises(InputInterruptedError):
            interrupts.read(reader, 100)
    assert os.read(reader, 100) == b"typed before\n"


def test_an_interrupt_ends_a_read_that_waits(pipe: tuple[int, int]) -> None:
    reader, _ = pipe
    signal.signal(signal.SIGALRM, lambda *_: interrupt())
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with Interrupts() as interrupts, pytest.raises(InputInterruptedError):
            interrupts.read(reader, 100)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_second_interrupt_strikes_at_once_and_the_old_way_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before
