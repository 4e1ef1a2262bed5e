"""What of a cluster is another after a while: whatever came, went or changed is named."""

from __future__ import annotations

from simulator.checkers.standing import Standing, changes


def test_nothing_has_changed() -> None:
    assert changes({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}) == ""


def test_what_changed_came_and_went_is_named() -> None:
    before: Standing = {"controller": "node-1 in epoch 3", "starts of node-1": 1, "in sync for a-0": [1, 2]}
    after: Standing = {"controller": None, "starts of node-1": 1, "in sync for b-0": [1]}
    assert changes(before, after) == (
        "controller: node-1 in epoch 3, then None; in sync for a-0: [1, 2], then None; in sync for b-0: None, then [1]"
    )
