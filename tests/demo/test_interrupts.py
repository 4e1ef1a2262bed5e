"""A signal ends the demo wherever it is, but a process that is being started gets its handle first."""

from __future__ import annotations

import os
import signal

import pytest

from demo.interrupts import SIGNALS, held, ignore, interrupting, unwrapped


@pytest.mark.parametrize("number", SIGNALS)
def test_each_interrupts(number: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupting():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_one_that_is_held_comes_behind_the_block(number: int) -> None:
    done = []

    def start_and_go_on() -> None:
        with held():
            os.kill(os.getpid(), number)
            done.append("the rest of the block")
        done.append("what is behind it")

    with interrupting(), pytest.raises(KeyboardInterrupt):
        start_and_go_on()
    assert done == ["the rest of the block"]


def test_a_failure_in_the_block_is_not_hidden() -> None:
    def start() -> None:
        with held():
            os.kill(os.getpid(), signal.SIGINT)
            raise OSError("no such program")

    with interrupting(), pytest.raises(OSError, match="no such program"):
        start()


def test_ignored_until_the_end() -> None:
    with interrupting():
        ignore()
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


def test_an_interrupt_inside_of_a_function_in_c_is_one() -> None:
    with pytest.raises(KeyboardInterrupt), unwrapped():
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
    with pytest.raises(SystemError), unwrapped():
        raise SystemError("something else")
