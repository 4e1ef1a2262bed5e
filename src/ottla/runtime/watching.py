"""Those who want to hear when a partition has something new: consumers and coordinators, and followers' fetches.

Consumers are told when the high watermark has moved, followers as soon as the log has grown. Nobody watches most
partitions most of the time, so there is no dict where there is nobody.
"""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Somebody who wants to know that there is more to read."""

    def partition_changed(self) -> None: ...

    def partition_gone(self) -> None:
        """The partition is not what it was: look it up again. It is watched no longer."""


class FollowerWatcher(Watcher, Protocol):
    """A follower's fetch: `partition_changed` says that the log has grown."""

    def partition_committed(self) -> None:
        """The high watermark moved, which is no hurry."""


class Watched:
    """What is watched."""

    __slots__ = ("follower_watchers", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] | None = None
        self.follower_watchers: dict[FollowerWatcher, None] | None = None

    def watch(self, watcher: Watcher) -> None:
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        if self.watchers is not None:
            self.watchers.pop(watcher, None)
            if not self.watchers:
                self.watchers = None

    def watch_end(self, watcher: FollowerWatcher) -> None:
        if self.follower_watchers is None:
            self.follower_watchers = {}
        self.follower_watchers[watcher] = None

    def unwatch_end(self, watcher: FollowerWatcher) -> None:
        if self.follower_watchers is not None:
            self.follower_watchers.pop(watcher, None)
            if not self.follower_watchers:
                self.follower_watchers = None

    def changed(self) -> None:
        """Tell those who wait that there is something new to see."""
        if self.watchers:
            for watcher in self.watchers:
                watcher.partition_changed()

    def grown(self) -> None:
        """Tell followers that there is something to fetch."""
        if self.follower_watchers:
            for follower in self.follower_watchers:
                follower.partition_changed()

    def committed(self) -> None:
        """Tell everybody that the high watermark moved."""
        self.changed()
        if self.follower_watchers:
            for follower in self.follower_watchers:
                follower.partition_committed()

    def let_watchers_go(self) -> None:
        watchers, self.watchers = self.watchers, None
        followers, self.follower_watchers = self.follower_watchers, None
        for watcher in (*(watchers or ()), *(followers or ())):
            watcher.partition_gone()
