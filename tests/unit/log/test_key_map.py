"""The map of keys never takes one key for another, and keeps to its memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.key_map import KeyMap, key_bytes_of
from ottla.wire.compiled.keys import Probe, hash_key

KEYS = st.binary(max_size=40) | st.sampled_from([b"x" * length for length in range(40)])
SEED = 99


class Probes:
    """Keys with offsets as the map wants them; holds the memory that the addresses point to."""

    def __init__(self, entries: list[tuple[bytes | None, int]], hashes: list[int] | None = None) -> None:
        self.data = np.frombuffer(b"".join(key or b"" for key, _ in entries) or b"\0", np.uint8)
        self.columns: npt.NDArray[np.int64] = np.zeros((Probe.COUNT, len(entries)), np.int64)
        address = self.data.ctypes.data
        for row, (key, offset) in enumerate(entries):
            length = -1 if key is None else len(key)
            self.columns[:, row] = (address, length, offset, hashes[row] if hashes else plain_hash(key or b""))
            address += max(length, 0)

    def put_into(self, key_map: KeyMap) -> bool:
        rows = self.columns.shape[1]
        if not key_map.make_room(rows, key_bytes_of(self.columns, 0, rows)):
            return False
        key_map.put(self.columns, 0, rows)
        return True

    def find_in(self, key_map: KeyMap) -> list[int]:
        found = np.zeros(self.columns.shape[1], np.int64)
        key_map.find(self.columns, len(found), found)
        return [int(offset) for offset in found]


def plain_hash(key: bytes) -> int:
    """Any hash will do as long as slots are never made anew; this one collides often."""
    return sum(key) % 7 * (1 << 32) + sum(key) % 3


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**40)), min_size=1, max_size=100), st.lists(KEYS, max_size=20))
def test_keys_whose_hashes_collide_stay_apart(entries: list[tuple[bytes | None, int]], others: list[bytes]) -> None:
    key_map = KeyMap(1 << 20, SEED)
    probes = Probes(entries)
    assert probes.put_into(key_map)
    latest: dict[bytes | None, int] = {}
    for key, offset in entries:
        latest[key] = max(offset, latest.get(key, -1))
    assert key_map.count == len(latest)
    assert probes.find_in(key_map) == [latest[key] for key, _ in entries]
    asked: list[tuple[bytes | None, int]] = [(key, 0) for key in others]
    if asked:
        assert Probes(asked).find_in(key_map) == [latest.get(key, -1) for key in others]


def test_a_record_without_a_key_is_neither_put_nor_found() -> None:
    key_map = KeyMap(1 << 20, SEED)
    probes = Probes([(None, 5), (b"", 6)])
    assert probes.put_into(key_map)
    assert key_map.count == 1
    assert probes.find_in(key_map) == [-1, 6]


def test_a_full_map_says_so_and_keeps_what_it_has() -> None:
    key_map = KeyMap(100_000, SEED)
    taken = 0
    while Probes([(b"%06d" % (taken + number), taken + number) for number in range(50)]).put_into(key_map):
        taken += 50
    assert taken > 1000
    assert key_map.count == taken
    assert key_map.bytes_used <= 100_000
    assert Probes([(b"%06d" % number, 0) for number in range(40)]).find_in(key_map) == list(range(40))


def test_an_empty_map_takes_what_is_larger_than_its_bound_only_if_it_must() -> None:
    key_map = KeyMap(10, SEED)
    assert not key_map.make_room(1000, 100_000)
    assert key_map.make_room(1000, 100_000, if_empty=True)
    probes = Probes([(b"%0100d" % number, number) for number in range(1000)])
    key_map.put(probes.columns, 0, 1000)
    assert probes.find_in(key_map) == list(range(1000))
    assert not key_map.make_room(1, 1, if_empty=True)


def test_a_map_that_grows_finds_what_it_had_before() -> None:
    entries: list[tuple[bytes | None, int]] = [(b"%d" % number, number) for number in range(20_000)]
    probes = Probes(entries)
    for row in range(len(entries)):
        address, length = probes.columns[:2, row].tolist()
        hashed = int(hash_key(address, length, np.uint64(SEED)))
        probes.columns[Probe.HASH, row] = hashed - (1 << 64) if hashed >= 1 << 63 else hashed
    key_map = KeyMap(1 << 24, SEED)
    for first in range(0, len(entries), 1000):
        assert key_map.make_room(1000, key_bytes_of(probes.columns, first, first + 1000))
        key_map.put(probes.columns, first, first + 1000)
    assert key_map.count == len(entries)
    assert probes.find_in(key_map) == list(range(20_000))


def test_keys_of_one_hash_that_differ_in_any_one_byte_stay_apart() -> None:
    for length in (1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 40):
        entries: list[tuple[bytes | None, int]] = [(bytes(length), length)]
        for position in range(length):
            entries.append((bytes(position) + b"x" + bytes(length - position - 1), position))
        probes = Probes(entries, hashes=[5 << 32] * len(entries))
        key_map = KeyMap(1 << 20, SEED)
        assert probes.put_into(key_map)
        assert probes.find_in(key_map) == [offset for _, offset in entries]
