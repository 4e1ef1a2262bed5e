"""Chaos: three brokers in processes of their own, real clients, and faults; a checker reads everything back.

`python -m chaos`. Nothing of the broker may be imported here: it is reached as anybody reaches it, over its sockets, by
its command line and by signals. Histories and the judgement of them are the simulator's. A run is drawn from a seed,
but real processes do not repeat themselves: a seed that failed is one to run often, and the simulator is where a
failure becomes repeatable.
"""
