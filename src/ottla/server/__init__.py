"""Sockets: frames in, answers out in the order of the requests, and limits on everything a client may cost.

`listener` accepts, `connection` reads frames and sends answers, `dispatch` turns a frame into an answer. What only
Linux has is in `platform`. Nothing here knows what a request means.
"""
