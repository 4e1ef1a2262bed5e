"""Samples are taken with a full page cache, whatever was free before."""

from __future__ import annotations

from pathlib import Path

from bench.page_cache import FREE_BYTES_MAX, READ_BYTES, READS_PER_LOOK, PageCache, free_bytes

LOOK_BYTES = READ_BYTES * READS_PER_LOOK


class Memory:
    """Says what is free each time it is asked, the last of it for ever."""

    def __init__(self, *free: int) -> None:
        self.free = list(free)

    def __call__(self) -> int:
        return self.free.pop(0) if len(self.free) > 1 else self.free[0]


def test_what_is_free_is_filled_and_nothing_is_written(tmp_path: Path) -> None:
    memory = Memory(FREE_BYTES_MAX + 2, FREE_BYTES_MAX + 2, FREE_BYTES_MAX + 1, FREE_BYTES_MAX)
    assert PageCache(tmp_path, memory).fill() == 2 * LOOK_BYTES
    assert (tmp_path / "hole").stat().st_blocks == 0


def test_pages_that_are_in_the_cache_are_not_read_again(tmp_path: Path) -> None:
    memory = Memory(FREE_BYTES_MAX + 1, FREE_BYTES_MAX + 1, 0)
    cache = PageCache(tmp_path, memory)
    assert cache.fill() == LOOK_BYTES
    assert cache._position == LOOK_BYTES
    memory.free = [FREE_BYTES_MAX + 1, FREE_BYTES_MAX + 1, 0]
    assert cache.fill() == LOOK_BYTES
    assert cache._position == 2 * LOOK_BYTES


def test_a_system_that_keeps_memory_free_is_not_read_for_ever(tmp_path: Path) -> None:
    assert PageCache(tmp_path, Memory(FREE_BYTES_MAX + 1)).fill() < FREE_BYTES_MAX + 1 + LOOK_BYTES


def test_a_full_page_cache_costs_nothing(tmp_path: Path) -> None:
    assert PageCache(tmp_path, Memory(FREE_BYTES_MAX)).fill() == 0
    assert not (tmp_path / "hole").exists()


def test_a_file_system_without_room_for_a_hole_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hole").mkdir()
    assert PageCache(tmp_path, Memory(FREE_BYTES_MAX + 1)).fill() == 0


def test_the_system_says_what_is_free() -> None:
    assert free_bytes() >= 0
