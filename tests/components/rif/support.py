"""Resources, messages and a driver for the tests of the RIF's machines."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.rif.at_work import TRANSITIONS, Use
from gspc_trio.components.rif.events import CheckGrant, ForwardToWorker, GrantChecked
from gspc_trio.components.rif.machine import Rif
from gspc_trio.components.rif.messages import WorkerEndpoint
from gspc_trio.components.worker.events import Assign
from gspc_trio.components.worker.messages import DefineCode, Finished, OpenJob, Submission, Submit
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from tests.components.support import TransitionsSeen

NODE = Resource("r1.node", "node")
SOCKET = Resource("r1.socket0", "socket", ("r1.node",))
CORE0 = Resource("r1.core0", "core", ("r1.socket0",))
CORE1 = Resource("r1.core1", "core", ("r1.socket0",))
DAG = (NODE, SOCKET, CORE0, CORE1)
JOB = OpenJob("j1")
CODE = DefineCode("j1", 7, b"code")


def endpoint(resource: Resource) -> WorkerEndpoint:
    return WorkerEndpoint(resource.resource_id, resource.resource_class, "r1", "host", "ws://x")


def sub(task_id: int, **options: Any) -> Submission:
    return Submission(task_id, 1, 7, (), TaskOptions(**options))


def submit(
    resource: Resource | str, grant: int, *tasks: int, job: str = "j1", more: tuple[str, ...] = ()
) -> Submit:
    name = resource if isinstance(resource, str) else resource.resource_id
    return Submit(job, (1, grant), (name, *more), tuple(sub(n) for n in tasks or (1,)))


def refused(submitted: Submit, why: str) -> Finished:
    outcomes = (
        Outcome(s.task_id, 1, Reason.RETURNED, error=TaskError("refused", why)) for s in submitted.submissions
    )
    return Finished(submitted.job, submitted.resources[0], tuple(outcomes))


class Bench:
    """A RIF under test: checks its invariants after each event, and what becomes of its resources."""

    def __init__(self, *events: Any) -> None:
        self.rif = Rif("r1", "host", "ws://x")
        self.uses = TransitionsSeen(TRANSITIONS, Use.GONE)
        for event in events:
            self(event)

    def __call__(self, event: Any) -> list[Any]:
        before = self.all_uses()
        actions = self.rif.handle(event, 0.0)
        self.rif.check()
        self.uses.compare(before, self.all_uses())
        return actions

    def all_uses(self) -> dict[str, Use]:
        return {resource.resource_id: self.rif.use_of(resource.resource_id) for resource in DAG}

    def refuses(self, event: Submit, why: str, *doubts: tuple[str, int, int]) -> None:
        """See that a submit is refused, and which (resource, grant, user) are doubted for it."""
        asked = [CheckGrant(name, (1, grant), user) for name, grant, user in doubts]
        assert self(event) == [*asked, refused(event, why)]

    def hears(self, name: str, asked: int, user: int, newest: int) -> list[Any]:
        """Say, of a grant in doubt, which is the newest one of the resource that was given."""
        return self(GrantChecked(CheckGrant(name, (1, asked), user), (1, newest) if newest else NO_GRANT))

    def takes(self, event: Submit) -> None:
        assert self(event) == [ForwardToWorker(event.resources[0], Assign(event, True))]
