"""The exact map from a key to its latest offset, in machine code.

Theory of operation. Compaction keeps a record if the map knows no later offset for its key, so a mistaken match loses a
record. A hash alone may match by mistake, or by intent of whoever chose the keys; so the map keeps the keys themselves
and compares bytes before it believes.

    slots    u64 per slot, a power of two of them: the hash's high half, then the entry's number plus one in 32 bits.
             0 is free. Neighbouring slots are tried in turn.
    entries  two i64 per entry: where its key starts in the arena, and the latest offset. One entry more marks the end.
    arena    the keys, one after the other

A look-up waits for memory three times: slot, entry, key. The hashes of a whole run of records are made first, so each
of the three can be asked for some records ahead of its turn (`_ask_ahead`); with millions of keys that halves the time.

The hash is seeded by the caller: keys that collide for one seed do not for another, so nobody can prepare them.

A run of records comes as `probes`, one column per record (see `Probe`). Their addresses point into the buffers that the
records were read from, which the caller keeps alive.
"""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

from numba import int64, njit, uint64, void

from ottla.wire.compiled.memory import (
    address_of,
    copy_bytes,
    equal_bytes,
    load_byte,
    load_half,
    load_number,
    load_word,
    multiply_fold,
    prefetch,
)
from ottla.wire.compiled.records import COLUMNS, READABLE_BYTES

NO_KEY_OFFSET: Final = -1
"""What a look-up finds for a key that the map does not hold: every record is later than that."""

SLOTS = uint64[::1]
NUMBERS = int64[::1]
BYTES = READABLE_BYTES.copy(readonly=False)


class Probe:
    """The rows of the array that describes a run of records to the map."""

    KEY_ADDRESS: Final = 0
    KEY_LENGTH: Final = 1
    """-1 for a record that the map is not asked about."""
    OFFSET: Final = 2
    HASH: Final = 3
    COUNT: Final = 4


_KEY_ADDRESS: Final = Probe.KEY_ADDRESS
_KEY_LENGTH: Final = Probe.KEY_LENGTH
_OFFSET: Final = Probe.OFFSET
_HASH: Final = Probe.HASH

_SLOT_AHEAD: Final = 24
_ENTRY_AHEAD: Final = 16
_KEY_AHEAD: Final = 8
"""Records between asking for a line of memory and reading it: about as long as memory takes."""
_ENTRY_BYTES: Final = 16
_MIX_1 = uint64(0x9E3779B97F4A7C15)
_MIX_2 = uint64(0xD6E8FEB86659FD93)
_ENTRY_MASK = uint64(0xFFFFFFFF)
_HALF = uint64(32)


@njit
def hash_key(address, length, seed):
    """64 bits of the `length` bytes at `address`; every byte and the length count."""
    state = seed ^ (uint64(length) * _MIX_1)
    if length >= 8:
        last = address + length - 8
        while address < last:
            state = multiply_fold(state ^ load_word(address), _MIX_2)
            address += 8
        state = multiply_fold(state ^ load_word(last), _MIX_2)
    elif length >= 4:
        word = load_half(address) | (load_half(address + length - 4) << _HALF)
        state = multiply_fold(state ^ word, _MIX_2)
    elif length > 0:
        word = load_byte(address) | (load_byte(address + (length >> 1)) << 8) | (load_byte(address + length - 1) << 16)
        state = multiply_fold(state ^ uint64(word), _MIX_2)
    return multiply_fold(state ^ _MIX_1, seed | uint64(1))


@njit
def _entry_address(entries, held):
    """Where the entry lies whose slot says `held`."""
    return entries + _ENTRY_BYTES * (int64(held & _ENTRY_MASK) - 1)


@njit
def _ask_ahead(slots, mask, entries, arena, hashes, left):
    """Ask for the memory that the records after this one will read; `left` are still to come, `hashes` is this one's.

    It guesses that each key is in the first slot that is tried, which is true for most.
    """
    if left > _SLOT_AHEAD:
        prefetch(slots + 8 * int64(load_word(hashes + 8 * _SLOT_AHEAD) & mask))
    if left > _ENTRY_AHEAD:
        hashed = load_word(hashes + 8 * _ENTRY_AHEAD)
        held = load_word(slots + 8 * int64(hashed & mask))
        if held != uint64(0) and held >> _HALF == hashed >> _HALF:
            prefetch(_entry_address(entries, held))
    if left > _KEY_AHEAD:
        hashed = load_word(hashes + 8 * _KEY_AHEAD)
        held = load_word(slots + 8 * int64(hashed & mask))
        if held != uint64(0) and held >> _HALF == hashed >> _HALF:
            prefetch(arena + load_number(_entry_address(entries, held)))


@njit
def _find(slots, mask, entries, arena, key, length, hashed):
    """The slot that holds the key, or the free slot where it belongs, and the entry's number, -1 if there is none."""
    slot = hashed & mask
    while True:
        held = load_word(slots + 8 * int64(slot))
        if held == uint64(0):
            return slot, int64(-1)
        if held >> _HALF == hashed >> _HALF:
            entry = _entry_address(entries, held)
            start = load_number(entry)
            if load_number(entry + _ENTRY_BYTES) - start == length and equal_bytes(arena + start, key, length):
                return slot, int64(held & _ENTRY_MASK) - 1
        slot = (slot + uint64(1)) & mask


@njit(int64(SLOTS, NUMBERS, BYTES, int64, COLUMNS, int64, int64), nogil=True, cache=True)
def put_latest(slots, entries, arena, count, probes, first, last):
    """Enter the keys of records `first` to `last`; returns the count of entries from now on.

    The caller sees to it that there is room for as many entries and key bytes, with slots to spare.
    """
    mask = uint64(len(slots) - 1)
    at_slots, at_entries, at_arena = address_of(slots), address_of(entries), address_of(arena)
    at_hashes = address_of(probes) + 8 * _HASH * probes.shape[1]
    for row in range(first, last):
        _ask_ahead(at_slots, mask, at_entries, at_arena, at_hashes + 8 * row, last - row)
        length = probes[_KEY_LENGTH, row]
        if length < 0:
            continue
        key = probes[_KEY_ADDRESS, row]
        offset = probes[_OFFSET, row]
        hashed = uint64(probes[_HASH, row])
        slot, entry = _find(at_slots, mask, at_entries, at_arena, key, length, hashed)
        if entry >= 0:
            entries[2 * entry + 1] = max(entries[2 * entry + 1], offset)
            continue
        start = entries[2 * count]
        copy_bytes(at_arena + start, key, length)
        entries[2 * count + 1] = offset
        count += 1
        entries[2 * count] = start + length
        slots[slot] = (hashed >> _HALF) << _HALF | uint64(count)
    return count


@njit(void(SLOTS, NUMBERS, BYTES, COLUMNS, int64, int64, NUMBERS), nogil=True, cache=True)
def find_latest(slots, entries, arena, probes, first, last, found):
    """Fill `found[first:last]` with the latest offset of each record's key, `NO_KEY_OFFSET` where the map has none."""
    mask = uint64(len(slots) - 1)
    at_slots, at_entries, at_arena = address_of(slots), address_of(entries), address_of(arena)
    at_hashes = address_of(probes) + 8 * _HASH * probes.shape[1]
    for row in range(first, last):
        _ask_ahead(at_slots, mask, at_entries, at_arena, at_hashes + 8 * row, last - row)
        length = probes[_KEY_LENGTH, row]
        found[row] = NO_KEY_OFFSET
        if length >= 0:
            key, hashed = probes[_KEY_ADDRESS, row], uint64(probes[_HASH, row])
            _, entry = _find(at_slots, mask, at_entries, at_arena, key, length, hashed)
            if entry >= 0:
                found[row] = entries[2 * entry + 1]


@njit(void(SLOTS, NUMBERS, BYTES, int64, uint64), nogil=True, cache=True)
def fill_slots(slots, entries, arena, count, seed):
    """Enter all entries into new, empty slots."""
    mask = uint64(len(slots) - 1)
    origin = address_of(arena)
    for entry in range(count):
        start = entries[2 * entry]
        hashed = hash_key(origin + start, entries[2 * entry + 2] - start, seed)
        slot = hashed & mask
        while slots[slot] != uint64(0):
            slot = (slot + uint64(1)) & mask
        slots[slot] = (hashed >> _HALF) << _HALF | uint64(entry + 1)
