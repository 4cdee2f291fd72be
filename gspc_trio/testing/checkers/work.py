"""Checker of work: never two at one resource or its relatives (invariants 4 and 5).

What was sent ahead begins only directly after the attempt whose result it takes, which has finished there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from gspc_trio.components.rif.events import GrantChecked
from gspc_trio.components.rm.messages import Revoked
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, TaskId
from gspc_trio.core.task import Reason
from gspc_trio.nursery.connections.rpc import CLOSED_THERE
from gspc_trio.testing.checkers.base import Broken, Family
from gspc_trio.testing.simulated.backend import Run
from gspc_trio.testing.simulated.process import SimulatedProcess

SHORT_S = 1e-3
"""What is said to have run for so much more than it has may have."""

PARTED_S = 0.01
"""So long after it has been told that its run-time system has parted from it a RIF may begin work."""

PLAYED = "drilled"
"""Role of hosts whose jobs make grants up."""


class Work:
    """What runs where under which grant, from what RIFs take and say, and what really runs.

    Args:
        family: of the resources.
        quiet_since: returns the time of the last fault.
    """

    def __init__(self, family: Family, quiet_since: Callable[[], float]) -> None:
        self._family = family
        self._quiet_since = quiet_since
        self._grant_of: dict[tuple[SimulatedProcess, JobId, TaskId, int], GrantId] = {}
        self._parts: dict[tuple[SimulatedProcess, JobId, TaskId, int], tuple[ResourceId, ...]] = {}
        self._ends: dict[tuple[SimulatedProcess, JobId, TaskId, int], list[str]] = {}
        self._timeouts: dict[tuple[SimulatedProcess, JobId, TaskId, int], float] = {}
        self._after: dict[tuple[SimulatedProcess, JobId, TaskId, int], tuple[TaskId, int]] = {}
        self._last: dict[tuple[SimulatedProcess, ResourceId, JobId], Run] = {}
        self._runs: dict[tuple[SimulatedProcess, JobId, TaskId, int], Run] = {}
        self._newest: dict[tuple[SimulatedProcess, ResourceId], GrantId] = {}
        self._parted: dict[SimulatedProcess, float] = {}
        self._running: dict[tuple[int, str, str], tuple[SimulatedProcess, Run, GrantId]] = {}

    def submitted(self, process: SimulatedProcess, event: Submit) -> None:
        """A RIF was given attempts."""
        for submission in event.submissions:
            key = (process, event.job, submission.task_id, submission.attempt)
            self._grant_of[key], self._parts[key] = event.grant_id, event.resources
            if submission.after is not None:
                self._after[key] = submission.after
            if submission.options.timeout_s is not None:
                self._timeouts[key] = submission.options.timeout_s

    def checked(self, process: SimulatedProcess, event: GrantChecked) -> None:
        """A RIF hears which grant of a resource is the newest: newer ones were made up."""
        place = process, event.asked.resource_id
        if event.newest < self._newest.get(place, NO_GRANT):
            self._newest[place] = event.newest
        if event.asked.user and event.newest < event.asked.grant_id and process.role != PLAYED:
            raise Broken(f"a job is said to have made up {event.asked}, and nobody does", place[1])

    def is_overtaken(self, process: SimulatedProcess, event: Submit) -> bool:
        """Whether a newer grant was used on a resource of a submit, or on a relative."""
        return any(
            self._newest.get((process, near), NO_GRANT) > event.grant_id
            for name in event.resources
            for near in self._family.near(name)
        )

    def reported(self, process: SimulatedProcess, finished: Finished) -> None:
        """A RIF says how attempts ended: finished and failed must be what really was."""
        for outcome in finished.outcomes:
            key = (process, finished.job, outcome.task_id, outcome.attempt)
            if outcome.reason in (Reason.FINISHED, Reason.FAILED):
                ends = self._ends.get(key, ())
                if outcome.error is not None and outcome.error.kind == "staging" and "finished" in ends:
                    continue  # copies of its results could not be made
                if outcome.error is not None and outcome.error.kind == "timeout":
                    self._timed_out(key)
                    continue
                if outcome.reason.value not in ends:
                    task = f"task {outcome.task_id} of {finished.job}"
                    raise Broken(
                        f"{task}, attempt {outcome.attempt}, is reported {outcome.reason}, but was {ends}",
                        task,
                    )

    def _timed_out(self, key: tuple[SimulatedProcess, JobId, TaskId, int]) -> None:
        """An attempt is said to have run too long: it really has, unless it stood still before it began."""
        run, task = self._runs.get(key), f"task {key[2]} of {key[1]}"
        if run is None or run.end_s is None:
            raise Broken(f"{task} is said to have run too long, and has not run", task)
        ran_s = run.end_s - run.begin_s
        if ran_s < self._timeouts.get(key, inf) - SHORT_S and run.begin_s > self._quiet_since():
            raise Broken(f"{task} is said to have run too long, after {ran_s:.3g} s", task)

    def revoked(self, process: SimulatedProcess, revoked: Revoked) -> None:
        """A RIF says that nothing runs any more under a grant."""
        for name in revoked.resources:
            place = (revoked.grant_id[0], process.host, name.partition(".")[2])
            found = self._running.get(place)
            if found is not None and found[0] is process and found[2] <= revoked.grant_id:
                task = f"task {found[1].task_id} of {found[1].job}"
                raise Broken(f"grant {revoked.grant_id} is said to be over, but {task} runs", task, name)

    def closed(self, process: SimulatedProcess, reason: str, now: float) -> None:
        """A RIF has lost the connection to its run-time system, which may have said why it ended it."""
        if reason.startswith(f"{CLOSED_THERE}: "):
            self._parted[process] = now

    def staging_failed(self, process: SimulatedProcess, job: JobId, submission: Submission) -> None:
        """The data of an attempt cannot be staged."""
        self._ends.setdefault((process, job, submission.task_id, submission.attempt), []).append("failed")

    def began(self, process: SimulatedProcess, run: Run) -> GrantId:
        """An attempt begins in compute; return its grant."""
        key = (process, run.job, run.task_id, run.attempt)
        grant_id = self._grant_of.get(key)
        task = f"task {run.task_id} of {run.job}"
        if grant_id is None:
            raise Broken(f"{task} runs on {run.resource_id}, which never got it", task)
        after, last = self._after.get(key), self._last.get((process, run.resource_id, run.job))
        if after is not None and (
            last is None or (last.task_id, last.attempt, last.how) != (*after, "finished")
        ):
            raise Broken(
                f"{task} begins on {run.resource_id}, and {after}, which it takes, has not ended", task
            )
        parted_s = self._parted.get(process, run.begin_s)
        if run.begin_s > parted_s + PARTED_S:
            late_s = run.begin_s - parted_s
            raise Broken(
                f"{task} begins {late_s:.3g} s after {process.name} was told that it is not wanted", task
            )
        rif_id = run.resource_id.partition(".")[0]
        parts = [name for name in self._parts[key] if name.partition(".")[0] == rif_id]
        for name in {near: None for part in parts for near in self._family.near(part)}:
            newest = self._newest.get((process, name), NO_GRANT)
            if grant_id < newest:
                raise Broken(
                    f"{task} runs on {run.resource_id} under grant {grant_id}, after {newest} on {name}",
                    task,
                    name,
                )
            found = self._running.get((grant_id[0], process.host, name.partition(".")[2]))
            if found is None or not found[0].alive or (found[1].job, found[2]) == (run.job, grant_id):
                continue
            raise Broken(
                f"{task} runs on {run.resource_id} under grant {grant_id} beside task {found[1].task_id} "
                f"of {found[1].job} on {name} under {found[2]}",
                task,
                name,
            )
        for name in parts:
            self._newest[process, name] = grant_id
            self._running[grant_id[0], process.host, name.partition(".")[2]] = process, run, grant_id
        return grant_id

    def ended(self, process: SimulatedProcess, run: Run) -> None:
        """An attempt is no longer in compute."""
        self._ends.setdefault((process, run.job, run.task_id, run.attempt), []).append(run.how)
        attempt = (process, run.job, run.task_id, run.attempt)
        grant_id = self._grant_of.get(attempt, NO_GRANT)
        self._last[process, run.resource_id, run.job] = run
        if attempt in self._timeouts:
            self._runs[attempt] = run
        for name in self._parts.get(attempt, (run.resource_id,)):
            key = (grant_id[0], process.host, name.partition(".")[2])
            found = self._running.get(key)
            if found is not None and found[1] is run:
                del self._running[key]

    def at_rest(self) -> None:
        """Nothing runs."""
        for process, run, _ in self._running.values():
            if process.alive:
                raise Broken(f"task {run.task_id} of {run.job} still runs on {run.resource_id}")
