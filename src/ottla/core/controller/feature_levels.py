"""The features of the cluster that have levels: which there are, which levels this version can work with.

Theory of operation. A level is a record in the metadata log, and every node acts on the level that it sees there. A new
cluster gets the highest levels. `metadata.version` says which records are written, `group.version` 1 switches the
consumer groups of KIP-848 on, `transaction.version` 1 lets coordinators write what KIP-890 needs to know and 2 tells
clients to give each transaction an epoch of its own, `eligible.leader.replicas.version` 1 lets the controller keep
replicas eligible that left the ISR while it was small (KIP-966).

The logs of clusters that are older than a feature's record have none. Their brokers did all the same what the level in
IMPLIED_LEVELS means, and could do nothing else, so that is the level of such a log, and the one level that a broker
supports which does not mention the feature. Nothing has to be written when a cluster is upgraded, and a broker of the
older version can come back until somebody changes the level.

What an editor must keep true: IMPLIED_LEVELS never changes. A feature that is new, or that gets a higher level, gets it
by a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 30
"""The level whose records are written: Kafka 4.3."""
KRAFT_VERSION: Final = "kraft.version"
"""How voters are recorded. It stands in the quorum's own records, and never changes here."""
KRAFT_VERSION_LEVEL: Final = 1
"""Voters have directories, and may change."""
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
GROUP_VERSION: Final = "group.version"
GROUP_VERSION_LEVEL: Final = 1
ELR_VERSION: Final = "eligible.leader.replicas.version"
ELR_VERSION_LEVEL: Final = 1

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, METADATA_VERSION_LEVEL),
    TRANSACTION_VERSION: (0, TRANSACTION_VERSION_LEVEL),
    GROUP_VERSION: (0, GROUP_VERSION_LEVEL),
    ELR_VERSION: (0, ELR_VERSION_LEVEL),
}
"""The features whose levels stand in the metadata log, with the lowest and highest level that is supported of each."""
IMPLIED_LEVELS: Final[Mapping[str, int]] = {GROUP_VERSION: 1, ELR_VERSION: 1}
UNSUPPORTED: Final = (0, 0)
OFF_ONLY: Final[Mapping[str, str]] = {"share.version": "share groups", "streams.version": "streams groups"}
"""What Kafka 4.3 has and this version has not. Their level is 0, and who asks for it is not refused."""
