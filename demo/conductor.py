"""What happens, in which order. Every step waits for a condition, none for a time alone, and each has a bound.

1. Three brokers, five topics. The Spark job starts beside them, since Spark takes longest.
2. Events flow, a few at first, all of them when the job has begun to give results, which are audited as they come.
3. When enough is written, the broker that leads the first partition of the activity dies by
   kill -9. When others lead all that it led, and results have come since, it is brought back and gets in sync again.
4. When the time is over no more is written. When all results are there the query is ended, and Spark counts them too.
5. The verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from demo.auditor import Auditor
from demo.brokers import Brokers
from demo.generators import Generator
from demo.interrupts import held, ignore
from demo.job import Job
from demo.streams import PARTITIONS, RESULTS, STREAMS
from demo.tables import Measured
from demo.timeline import Failover, Place, Timeline
from demo.verdict import disagreements
from demo.view import Now, View
from demo.waiting import TooLate, until

WARM_UP_SHARE: Final = 0.1
"""How much of the rate flows until the first results are there: the first batches of a Spark job take their time."""
KILL_SHARE: Final = 0.4
"""How much is written before a broker dies."""
LEADER: Final = (STREAMS[0].topic, 0)


class Failed(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    seconds: float = 40.0
    rate: float = 6_000.0
    down_seconds: float = 5.0
    limit_seconds: float = 170.0
    seed: int = 1
    keep: bool = False


class Conductor:
    """One run. Use it in a `with` block: whatever happens, its processes have ended behind it."""

    def __init__(self, plan: Plan, directory: Path, console: Console) -> None:
        self._plan = plan
        self.timeline = Timeline()
        self.measured = Measured()
        self._failover = Failover(self.timeline)
        self._brokers = Brokers(directory / "brokers")
        self._directory = directory
        self._doing = "starting three brokers"
        self._bounded_since = 0.0
        self._job: Job | None = None
        self._auditor: Auditor | None = None
        self._generators: list[Generator] = []
        self._finished = False
        self.view = View(console, self.timeline, self._now)

    def __enter__(self) -> Conductor:
        self.view.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        # Impatience would leave processes behind. Everything from here on has a bound.
        ignore()
        self.view.__exit__(None, None, None)
        for generator in self._generators:
            generator.stop()
        if self._job is not None:
            self._job.close(at_once=not self._finished)
        if self._auditor is not None:
            self._auditor.stop()
        self._brokers.close(at_once=not self._finished)

    # -- the steps

    def run(self) -> list[str]:
        """All steps; what is wrong in the end."""
        self._start_brokers()
        self._start_flow()
        self._kill_and_bring_back()
        self._flow_on()
        self._drain()
        assert self._auditor is not None
        assert self._job is not None
        assert self._job.audit is not None
        self._finished = True
        truths = {stream.topic: generator.truth for stream, generator in zip(STREAMS, self._generators, strict=True)}
        self.truths, self.seen = truths, self._auditor.seen
        return disagreements(truths, self._auditor.seen, self._auditor.strange, self._job.audit)

    def _start_brokers(self) -> None:
        self._brokers.start()
        self.measured.brokers_ready_seconds = self.timeline.mark("brokers ready")
        pids = ", ".join(str(node.pid) for node in self._brokers.by_id.values())
        self.view.say(f"three brokers are ready on {self._brokers.bootstrap_servers} (pids {pids})")
        self._doing = "starting Spark"
        with held():
            self._job = Job(self._brokers.bootstrap_servers, self._directory / "spark", self.timeline)
        self._brokers.create_topics([*(stream.topic for stream in STREAMS), *RESULTS], PARTITIONS)

    def _start_flow(self) -> None:
        plan, bootstrap = self._plan, self._brokers.bootstrap_servers
        self._auditor = Auditor(bootstrap, self.timeline)
        self._auditor.start()
        self._generators = [
            Generator(
                stream, bootstrap, plan.rate * WARM_UP_SHARE * stream.share, plan.seed, self.timeline, self._failover
            )
            for stream in STREAMS
        ]
        job = self._job
        assert job is not None
        self._until(lambda: job.spark_version != "", "Spark has started")
        self.view.say(f"Spark {job.spark_version} runs the job (pid {job.pid}), with an exactly-once sink")
        self.timeline.mark("first event")
        for generator in self._generators:
            generator.start()
        self._doing = "a few events flow while Spark runs its first batches"
        self.view.say(f"events begin to flow: {', '.join(stream.topic for stream in STREAMS)}")
        self._until(lambda: self._results() > 0, "the first result is committed")
        waiting = self._written()
        self.view.say(f"the first results are committed, {waiting:,} events are written by now")
        self._until(lambda: self._results() >= waiting, "Spark has caught up with what was written before it ran")
        self.timeline.mark("flow")
        for stream, generator in zip(STREAMS, self._generators, strict=True):
            generator.rate = plan.rate * stream.share
        self._doing = "events flow, and so do results"
        self.view.say(f"now {plan.rate:,.0f} events a second")
        enough = self._written() + KILL_SHARE * plan.rate * plan.seconds
        self._until(lambda: self._written() >= enough, f"{enough:,.0f} events are written")

    def _kill_and_bring_back(self) -> None:
        self._until(lambda: self._brokers.leaders() is not None, "the cluster says who leads what")
        leaders = self._brokers.leaders() or {}
        victim = leaders[LEADER]
        places = [place for place, leader in leaders.items() if leader == victim]
        fed = [place for place in places if self._failover.is_fed(place)]
        written, pid = self._written(), self._brokers.by_id[victim].pid
        self._failover.struck(fed)
        self._brokers.by_id[victim].kill()
        killed = self.timeline.mark("killed")
        self._doing = f"broker {victim} is dead"
        self.view.say(
            f"kill -9 {pid}: broker {victim}, which led {len(places)} of {len(leaders)} partitions, is dead "
            f"after {written:,} events"
        )
        self._until(lambda: self._led_by_others(places, victim), "others lead what the dead broker led")
        led = self.timeline.now
        self._until(lambda: self._failover.acknowledged_since(fed, led), "all partitions are written to again")
        self.view.say("every partition is written to again")
        self._until(lambda: self.timeline.last_result > led, "results come again")
        self._until(lambda: self.timeline.now >= killed + self._plan.down_seconds, "time passes")
        self.measured.failover_seconds = self._failover.over()
        self._brokers.start(victim)
        back = self.timeline.mark("back")
        self.measured.down_seconds = back - killed
        self._doing = f"broker {victim} is back and catches up"
        self.view.say(f"broker {victim} is back after {back - killed:.1f} s (pid {self._brokers.by_id[victim].pid})")
        self._until(self._brokers.in_sync, "all replicas are in sync")
        self.measured.in_sync_seconds = self.timeline.now - back
        self.view.say("all replicas are in sync again")

    def _flow_on(self) -> None:
        if self._plan.keep:
            self._keep_on()
            return
        self._doing = "all is well, events flow on"
        end = self.timeline.marks["flow"] + self._plan.seconds
        self._until(lambda: self.timeline.now >= end, "the time is over")

    def _keep_on(self) -> None:
        """Until Ctrl-C, from which on there is a bound again."""
        self._doing = "all is well, events flow on until Ctrl-C"
        servers = self._brokers.bootstrap_servers
        self.view.say(f"this goes on until Ctrl-C; look at it: ottla group list --bootstrap {servers}")
        try:
            while True:
                self._look_after()
                time.sleep(0.1)
        except KeyboardInterrupt:
            self._bounded_since = self.timeline.now
            self.view.say("Ctrl-C: no more events, the results are compared")

    def _drain(self) -> None:
        assert self._auditor is not None
        assert self._job is not None
        auditor, job = self._auditor, self._job
        self._doing = "no more events, the last results come"
        for generator in self._generators:
            generator.stop()
        for generator in self._generators:
            if not generator.join():
                raise Failed("not every event was acknowledged in time")
        self._look_after()
        self.timeline.mark("written")
        made = sum(generator.truth.made for generator in self._generators)
        self.view.say(f"{made:,} events are written, and that is all")
        self._until(lambda: self._results() >= made, "all results are committed")
        self.timeline.mark("drained")
        self._doing = "Spark counts the results"
        job.finish()
        self._until(lambda: job.audit is not None, "Spark has counted the results")
        # A result too many may come last: only now, when nobody writes any more, is the end the end.
        auditor.read_to_end()
        self._until(lambda: auditor.at_end, "all results are read")
        self.measured.restarts = len(job.restarts)

    # -- what they look at

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Return when it holds. The bound is that of the whole; on a busy machine any step may take most of it."""

        def holds() -> bool:
            self._look_after()
            return condition()

        left = self._plan.limit_seconds - (self.timeline.now - self._bounded_since)
        try:
            until(holds, what, left)
        except TooLate:
            raise Failed(
                f"{self._plan.limit_seconds:.0f} s are over (--limit), and this was still to come: {what}"
            ) from None

    def _look_after(self) -> None:
        """Raise what happened in other threads and processes."""
        if self._job is not None and self._job.has_ended and self._job.audit is None:
            raise Failed("the Spark job ended by itself:\n" + self.last_lines_of_spark())
        crashes = [generator.crash for generator in self._generators]
        crashes += [self._auditor.crash] if self._auditor is not None else []
        for crash in crashes:
            if crash is not None:
                raise Failed(f"a client failed: {crash}") from crash

    def last_lines_of_spark(self, count: int = 15) -> str:
        if self._job is None or not self._job.log_path.exists():
            return ""
        return "\n".join(self._job.log_path.read_text(errors="replace").splitlines()[-count:])

    def _written(self) -> int:
        return sum(generator.truth.acknowledged for generator in self._generators)

    def _results(self) -> int:
        return self._auditor.total if self._auditor is not None else 0

    def _now(self) -> Now:
        goal = 0 if self._plan.keep else int(self._plan.rate * self._plan.seconds)
        alive = {number: node.is_running for number, node in self._brokers.by_id.items()}
        return Now(self._doing, self._written(), self._results(), goal, alive)

    def _led_by_others(self, places: list[Place], victim: int) -> bool:
        leaders = self._brokers.leaders()
        return leaders is not None and all(leaders.get(place, -1) not in (-1, victim) for place in places)
