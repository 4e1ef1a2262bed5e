"""The APIs of transactions and of the ids of producers.

A permission is that for the transactional id. AddOffsetsToTxn and TxnOffsetCommit need READ on the group as well, the
latter also on the topics; AddPartitionsToTxn needs WRITE on the topics, and from version 4 on, between brokers,
CLUSTER_ACTION on the cluster instead of all that. InitProducerId with a transactional id needs WRITE on that.
WriteTxnMarkers may also be sent by an operator with ALTER on the cluster.
"""

from __future__ import annotations

from typing import Final

from ottla.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.api.entry import Api, Operation, Permission, Resource, declared_api
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_CLUSTER, _TRANSACTIONAL_ID = Resource.CLUSTER, Resource.TRANSACTIONAL_ID

TRANSACTION_APIS: Final[tuple[Api, ...]] = (
    declared_api(
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id.handle,
        Permission(_CLUSTER, Operation.IDEMPOTENT_WRITE),
        error_response=init_producer_id.failed,
    ),
    declared_api(
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        add_partitions_to_txn.handle,
        Permission(_TRANSACTIONAL_ID, Operation.WRITE),
        error_response=add_partitions_to_txn.failed,
    ),
    declared_api(
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        add_offsets_to_txn.handle,
        Permission(_TRANSACTIONAL_ID, Operation.WRITE),
        error_response=add_offsets_to_txn.failed,
    ),
    declared_api(
        EndTxnRequest,
        EndTxnResponse,
        end_txn.handle,
        Permission(_TRANSACTIONAL_ID, Operation.WRITE),
        error_response=end_txn.failed,
    ),
    declared_api(
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        txn_offset_commit.handle,
        Permission(_TRANSACTIONAL_ID, Operation.WRITE),
        error_response=txn_offset_commit.failed,
    ),
    declared_api(
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        write_txn_markers.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=write_txn_markers.failed,
    ),
    declared_api(
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        describe_transactions.handle,
        Permission(_TRANSACTIONAL_ID, Operation.DESCRIBE),
        error_response=describe_transactions.failed,
        heavy=True,
    ),
    declared_api(
        ListTransactionsRequest,
        ListTransactionsResponse,
        list_transactions.handle,
        Permission(_TRANSACTIONAL_ID, Operation.DESCRIBE),
        error_response=list_transactions.failed,
        heavy=True,
    ),
)
