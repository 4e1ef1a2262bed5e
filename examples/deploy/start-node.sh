#!/bin/sh
# One node of compose.yaml: OTTLA_NODE_ID, OTTLA_CLUSTER_ID, OTTLA_VOTERS and OTTLA_OUTSIDE_PORT say which.
set -eu
name="$(hostname)"
exec ottla serve --data /var/lib/ottla --metrics-port 9404 --metrics-host 0.0.0.0 --log-format json \
    --set "node.id=$OTTLA_NODE_ID" \
    --set "cluster.id=$OTTLA_CLUSTER_ID" \
    --set "controller.quorum.voters=$OTTLA_VOTERS" \
    --set "listeners=INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:$OTTLA_OUTSIDE_PORT" \
    --set "advertised.listeners=INSIDE://$name:9092,OUTSIDE://127.0.0.1:$OTTLA_OUTSIDE_PORT" \
    --set "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT" \
    --set "inter.broker.listener.name=INSIDE" \
    --set "broker.rack=$name" \
    --set "default.replication.factor=3" \
    --set "min.insync.replicas=2" \
    --set "offsets.topic.replication.factor=3" \
    --set "transaction.state.log.replication.factor=3" \
    --set "transaction.state.log.min.isr=2"
