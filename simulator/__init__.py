"""A cluster of real brokers, and clients, in one process on a virtual clock, network and disk, from one seed.

What lives here: the virtual machine room (`timeline`, `node_loop`, `disk`, `network`, `node`), clients that behave like
Kafka's (`clients/`), a workload and faults drawn from the seed, checkers of what came of it (`checkers/`), and a
catalogue of deliberate bugs that they must find (`bugs/`). It is not shipped, and nothing in `ottla` knows of it.

What may not: a wall clock, a thread, a socket, chance that does not come from the seed. A seed gives the same run, to
the byte, each time.
"""
