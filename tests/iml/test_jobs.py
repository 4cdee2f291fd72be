"""Jobs as clients of a memory layer: their data goes with them, and none comes after them."""

from __future__ import annotations

from typing import Any

from gspc_trio.iml import messages as x
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.events import Asked, CallServer, ClientDown, ClientUp, RefuseRequest, ServerUp

CLIENT, OTHER = 20, 21


def feed(machine: Coordinator, event: Any) -> list[Any]:
    actions = machine.handle(event, 0.0)
    machine.check()
    return actions


def test_nothing_is_made_for_a_job_that_is_no_client_any_more() -> None:
    """A task that has not heard of the end of its job asks for memory that nobody would give back."""
    machine = Coordinator("i")
    feed(machine, ServerUp(1, 0, x.ServerHello("a", "ws://a:1", "", 1000)))
    feed(machine, ClientUp(CLIENT, 0, x.JoinLayer("j1")))
    asked = Asked(OTHER, 0, x.Alloc("j1", 10, writing=True))
    (made,) = feed(machine, asked)
    assert isinstance(made, CallServer)
    feed(machine, ClientDown(CLIENT))
    (refused,) = feed(machine, asked)
    assert isinstance(refused, RefuseRequest)
    assert (refused.kind, "j1 is no client" in refused.message) == ("WrongJob", True)
    assert machine.status().data == ()
    feed(machine, ClientUp(CLIENT + 9, 0, x.JoinLayer("j1")))
    assert isinstance(feed(machine, asked)[0], CallServer)
