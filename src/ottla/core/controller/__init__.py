"""The controller: what the cluster's metadata is, and how commands change it.

A command gives records and an answer, and only applying records changes the metadata. Nothing here waits, writes, looks
at a clock or draws a random number; ids are drawn from a source that is handed in.
"""
