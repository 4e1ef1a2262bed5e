"""The demo: a website's events through a cluster and through Spark, exactly once, though a broker dies half-way.

`make demo`, or `python -m demo --help`. Three brokers run in processes of their own, a Spark job in another. In this
one are those who write the events, a reader who audits what comes out, and the conductor who kills and compares.

    command.py     options, exit codes
    conductor.py   what happens, in which order
    brokers.py     the cluster
    streams.py     the three kinds of events
    generators.py  those who write them, and what they know of it: the truth
    pipeline.py    the Spark job, a program of its own; job.py is the handle on it
    auditor.py     reads the committed results as they come
    verdict.py     compares them with the truth
    timeline.py    what was measured when; view.py shows it as it happens, picture.py and tables.py at the end

It is a user of the product: of the package it uses what anybody may, and of the brokers their sockets and signals.
"""
