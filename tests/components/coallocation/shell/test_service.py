"""COA-3, COA-7: services in a tree over sockets, each with an embedded run-time system."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from gspc_trio import open_coallocation, open_resources, open_rts
from gspc_trio.components.coallocation.agents.delegation import Credential, CredentialLimit, restrict
from gspc_trio.components.coallocation.agents.words import (
    CancelParts,
    CredentialWanted,
    GetRequest,
    ListRequests,
    PartNeed,
    PartsAccepted,
    PartsDone,
    PartsReady,
    PartsRequest,
    PlacedPart,
    RegisterService,
    ServiceRegistered,
    StopRequest,
)
from gspc_trio.components.coallocation.running import PartProgram
from gspc_trio.components.coallocation.shell.request import RunningCoallocation, connect_service
from gspc_trio.components.coallocation.shell.service import (
    SERVICE_ROLE,
    CoallocationShell,
    open_coallocation_service,
)
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import ConnectionInfo, write_connection_file
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, RemoteError
from gspc_trio.version import VERSION
from tests.support import until

HANG_S = 60.0
TOKEN = b"t" * 32


def says(words: str, **options: object) -> dict[str, object]:
    return {"executable": "sh", "arguments": ["-c", words], **options}


JOBS: dict[str, Any] = {
    "both": '+(half(contact=z))(half(contact="low/b"))',
    "half": says("echo $GSPC_PART $GSPC_RESOURCES"),
    "one": says("echo one"),
    "all": says("echo all", count=2),
    "long": says("sleep 3600"),
}


@asynccontextmanager
async def served(
    name: str, sites: dict[str, RunTimeSystem | Path], folder: Path, **more: Any
) -> AsyncIterator[CoallocationShell]:
    network = Network(wire_codec, TOKEN)
    async with open_coallocation_service(
        name, sites, network=network, listen="ws://127.0.0.1:0", **more
    ) as service:
        info = ConnectionInfo.create(service.address, TOKEN, VERSION)
        write_connection_file(folder / f"{name}.json", info)
        yield service


class Tree:
    """Two services, top and low, with the sites z and b of two cores each; a part of it can be taken away."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "top.json"
        self.folder = folder
        self.rts: dict[str, RunTimeSystem] = {}
        self.services: dict[str, CoallocationShell] = {}
        self._ends: dict[str, trio.CancelScope] = {}

    async def run(self, kind: str, opened: Any, task_status: trio.TaskStatus[Any]) -> None:
        with trio.CancelScope() as self._ends[kind]:
            async with opened as thing:
                task_status.started(thing)
                await trio.sleep_forever()

    def end(self, what: str) -> None:
        self._ends[what].cancel()

    def has(self, name: str) -> Callable[[], bool]:
        return lambda: name in self.services["top"].machine.service.children

    async def free(self) -> dict[str, int]:
        return {name: (await rts.status()).classes["core"].free for name, rts in self.rts.items()}

    async def until_free(self) -> None:
        for rts in self.rts.values():
            async with open_resources(rts) as resources:
                await resources.acquire("core", "core")


@asynccontextmanager
async def tree(folder: Path) -> AsyncIterator[Tree]:
    made = Tree(folder)
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            for name in ("z", "b"):
                made.rts[name] = await nursery.start(made.run, name, open_rts(cores=2))
            top = served("top", {"z": made.rts["z"]}, folder)
            made.services["top"] = await nursery.start(made.run, "top", top)
            low = served("low", {"b": made.rts["b"]}, folder, parent=made.file)
            made.services["low"] = await nursery.start(made.run, "low", low)
            await until(made.has("low"))
            yield made
            nursery.cancel_scope.cancel()


async def ended(text: str, at: Tree) -> list[tuple[str, str, str]]:
    async with open_coallocation(text, jobs=JOBS, service=at.file) as request:
        return [(str(end.state), end.output, end.reason) for end in await request.wait()]


async def test_parts_of_two_services_start_together_and_stages_go_below(tmp_path: Path) -> None:
    async with tree(tmp_path) as at:
        (end,) = await ended("both", at)
        resources = end[1].split()[1]
        assert sorted(end[1].splitlines()) == [f"0 {resources}", f"1 {resources}"]
        assert len(resources.split(",")) == 2
        found = await ended("*(*(*(one)(one))(all))(one)", at)
        assert [(state, output) for state, output, _ in found] == [
            ("finished", "one\n"),
            ("finished", "one\n"),
            ("finished", "all\nall\n"),
            ("finished", "one\n"),
        ]
        (below,) = at.services["low"].machine.entries()
        assert below.text.startswith("*(*(one)(one))(all)"), "the stage went to the service below"
        (refused,) = await ended("all(count=3)", at)
        assert refused[2] == "no site has 3 of class core; the largest has 2 of this class"
        async with connect_service(at.file) as peer:
            assert [one.is_over for one in (await peer.call(ListRequests())).requests] == [True] * 3
            with pytest.raises(RemoteError, match="there is no request 'x'; there are: top-1, top-2, top-3"):
                await peer.call(GetRequest("x"))
        await at.until_free()


@pytest.mark.parametrize("lost", ["low", "b"])
async def test_who_is_lost_between_ready_and_go_takes_its_request_along_and_nothing_is_held(
    tmp_path: Path, lost: str
) -> None:
    async with tree(tmp_path) as at:
        async with open_resources(at.rts["z"]) as resources:
            held = await resources.acquire("core", "core")
            async with open_coallocation("*(*(both))(one)", jobs=JOBS, service=at.file) as request:
                # Its part below is ready, and the other one waits for what is held here.
                await until(lambda: at.services["low"].machine.service.allocations)
                (allocation,) = at.services["low"].machine.service.allocations.values()
                await until(lambda: allocation.phase.value == "in doubt")
                at.end(lost)
                (first, second) = await request.wait()
            assert (str(first.state), str(second.state)) == ("failed", "not run")
            assert f"{lost} is gone" in first.reason
            assert second.reason == "it waits for job 1 (both), which has failed"
            resources.release(held)
        if lost == "b":
            del at.rts["b"]
        await at.until_free()


async def test_cancel_is_answered_when_nothing_below_runs_any_more(tmp_path: Path) -> None:
    async with tree(tmp_path) as at, trio.open_nursery() as nursery:
        opened: list[RunningCoallocation] = []

        async def run() -> None:
            async with open_coallocation("*(*(long))(*(long))(one)", jobs=JOBS, service=at.file) as request:
                opened.append(request)
                await request.wait()

        nursery.start_soon(run)
        await until(lambda: opened and opened[0].request_id)
        async with connect_service(at.file) as peer:
            await peer.call(StopRequest("top-1"))
            assert at.services["low"].machine.requests == {}
            assert at.services["low"].machine.service.allocations == {}
            details = await peer.call(GetRequest("top-1"))
        assert [job.state for job in details.jobs] == ["cancelled"] * 3
        await at.until_free()


class Above:
    """The service above, played by the test."""

    def __init__(self) -> None:
        self.registered: RegisterService | None = None
        self.peer: Peer | None = None
        self.said: list[object] = []

    async def serve(self, peer: Peer) -> None:
        self.peer = peer
        while True:
            for message in await peer.receive():
                if isinstance(message, RegisterService):
                    self.registered = message
                    peer.post(ServiceRegistered(("above",)))
                else:
                    self.said.append(message)

    async def ask(self, number: int, credential: Credential | None, count: int = 1) -> object:
        """Ask for cores at the site, give them back at once, and return what the answer was."""
        name = f"above.1/{number}"
        program = msgspec.msgpack.encode(PartProgram(0, ("true",), "/", {}))
        part = PlacedPart(0, PartNeed(count=count, payload=program), ("b",), credential)
        assert self.peer is not None
        self.peer.post(PartsRequest(name, (part,)))
        await until(lambda: self.of(name))
        first = self.of(name)[0]
        if isinstance(first, PartsAccepted):
            self.peer.post(CancelParts(name))
            await until(lambda: isinstance(self.of(name)[-1], PartsDone))
        return first

    async def lent(self, request: str) -> Credential:
        """Ask for the credential of the site for a request."""
        assert self.peer is not None
        self.peer.post(CredentialWanted(request, ("b",)))
        await until(lambda: self.of(request))
        (answer,) = self.of(request)
        assert answer.path == ("b",)
        assert isinstance(answer.credential, Credential), answer
        return answer.credential

    def of(self, name: str) -> list[Any]:
        return [one for one in self.said if getattr(one, "request", "") == name]


async def test_credentials_that_are_expired_widened_cut_or_used_start_nothing(tmp_path: Path) -> None:
    above, network = Above(), Network(wire_codec, TOKEN)
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery, open_rts(cores=2) as rts:

            async def listen(task_status: trio.TaskStatus[str]) -> None:
                await network.listen(
                    "ws://127.0.0.1:0", above.serve, role=SERVICE_ROLE, name="above", task_status=task_status
                )

            address = await nursery.start(listen)
            file = tmp_path / "above.json"
            write_connection_file(file, ConnectionInfo.create(address, TOKEN, VERSION))
            async with open_coallocation_service("low", {"b": rts}, parent=file):
                await until(lambda: above.registered)
                assert above.registered is not None
                (offer,) = above.registered.offers
                assert offer.lends
                assert TOKEN.hex() not in repr(above.registered), "the secret of a connection file"
                lent, other = await above.lent("above.1"), await above.lent("above.2")
                assert lent.credential_id != other.credential_id, "each is minted for one request"
                limited = restrict(lent, CredentialLimit(count=1, request="above.1/1"))
                cut = msgspec.structs.replace(limited, limits=limited.limits[:-1])
                wider = (*limited.limits[:-1], CredentialLimit(count=2, request="above.1/1"))
                for number, (credential, count, reason) in enumerate(
                    [
                        (None, 1, "gives resources only to requests with a credential"),
                        (restrict(lent, CredentialLimit(expires_s=time.time() - 1)), 1, "has expired"),
                        (cut, 1, "was not made here, or was changed on its way"),
                        (msgspec.structs.replace(limited, limits=wider), 2, "was changed on its way"),
                        (limited, 2, "is for 1 resources, not for 2"),
                        (restrict(lent, CredentialLimit(classes=frozenset({"gpu"}))), 1, "is for gpu, not"),
                        (
                            restrict(lent, CredentialLimit(subtree=("above", "other"))),
                            1,
                            "below above/other",
                        ),
                    ]
                ):
                    answer = await above.ask(number, credential, count)
                    assert isinstance(answer, PartsDone), answer
                    assert reason in answer.error
                    assert not answer.ran
                assert isinstance(await above.ask(10, limited), PartsAccepted)
                again = await above.ask(11, limited)
                assert isinstance(again, PartsDone)
                assert "used already" in again.error
                assert not [one for one in above.said if isinstance(one, PartsReady) and not one.resources]
            nursery.cancel_scope.cancel()


async def test_a_site_that_asks_for_credentials_takes_those_that_a_client_brings(tmp_path: Path) -> None:
    with trio.fail_after(HANG_S):
        async with AsyncExitStack() as stack:
            rts = await stack.enter_async_context(open_rts(cores=1))
            await stack.enter_async_context(served("top", {"a": rts}, tmp_path, lends=False))
            file = tmp_path / "top.json"
            async with open_coallocation("one", jobs=JOBS, service=file) as request:
                (end,) = await request.wait()
            assert end.reason == "site a gives resources only to requests with a credential for it"
            async with open_coallocation("*(one)(one)", jobs=JOBS, service=file, rts={"a": rts}) as request:
                assert [str(end.state) for end in await request.wait()] == ["finished"] * 2


async def test_a_name_that_is_there_already_is_refused_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tree(tmp_path) as at, AsyncExitStack() as stack:
        await stack.enter_async_context(served("low", {"c": at.rts["z"]}, tmp_path / "more", parent=at.file))
        await stack.enter_async_context(served("right", {"b": at.rts["z"]}, tmp_path / "x", parent=at.file))
        await until(lambda: "there is another low already" in caplog.text)
        await until(lambda: "there is another b already: give site b another name" in caplog.text)
        assert caplog.text.count("there is another low already") == 1, "said once, though it is tried again"
        assert [offer.path for offer in at.services["top"].machine.service.offers()] == [("low", "b"), ("z",)]
