"""Cores decide: pure state machines. No files, sockets, clocks, threads or random numbers; all of that is handed in."""
