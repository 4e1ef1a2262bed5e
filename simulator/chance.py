"""Chance, all of it from one seed: a stream for each subsystem, so that one that draws more leaves the others alone."""

from __future__ import annotations

import random
from uuid import UUID


class Chance:
    """Streams of random numbers by name."""

    __slots__ = ("seed",)

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> random.Random:
        """The same name gives the same numbers, whatever else was drawn."""
        return random.Random(f"{self.seed}/{name}")


def uuids(rng: random.Random) -> UUID:
    """A random UUID of version 4."""
    return UUID(int=rng.getrandbits(128), version=4)
