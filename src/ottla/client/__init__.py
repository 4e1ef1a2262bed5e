"""A small blocking Kafka protocol client, for the command line, the console, Spark's executors and peers.

It starts no thread and keeps no global state: whoever calls does the input and output, and every wait has an end.
What may be sent to another process (`settings`) is picklable; what holds a socket is not. It speaks to any Kafka
broker.

    settings.py          addresses, time-outs, security, in Kafka's spelling
    security.py          what the keys of security mean (tls.py, authentication.py and scram.py do it)
    connection.py        one socket: negotiated versions, requests that may overlap, a deadline on each answer
    cluster.py           which broker leads what; routes, retries with backoff
    admin.py             topics, configs, records, cluster, log directories, quorum
    offsets.py           earliest, latest, by timestamp
    producer.py          records in, batches out (batch_sender.py carries ready batches)
    partition_reader.py  raw batches of one partition, the next fetch always under way (for Spark)
    consumer.py          decoded records of many partitions
    coordinators.py      who coordinates a group or a transactional id
    groups.py            list, describe, delete groups; their offsets
    group_consumer.py    records of the partitions that a group hands out (group_membership.py is its place there)
    transactions.py      list, describe, abort transactions

Imports wire and model, and nothing else of the package.
"""
