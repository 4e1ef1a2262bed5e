"""Checkers: what must be true of a run, judged from outside (histories of clients) and inside (state after events).

A checker finds and reports; it never changes what it looks at, and it draws no chance.
"""
