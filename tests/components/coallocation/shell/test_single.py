"""Requests for one resource, each step of which is taken by whoever brings what it waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.msgpack import encode

from gspc_trio import open_resources, open_rts
from gspc_trio.components.coallocation.agents.service import PeerGone, PeerSaid, SiteOffered
from gspc_trio.components.coallocation.agents.words import (
    CancelParts,
    PartNeed,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    PlacedPart,
)
from gspc_trio.components.coallocation.running import PartProgram
from gspc_trio.components.coallocation.shell.site import RtsSite
from gspc_trio.components.rts.shell.client import RunTimeSystem

HANG_S = 60.0


class Said:
    """What a site says to its service; the tests wait for it."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[object](1000)

    def put(self, event: PeerSaid | SiteOffered | PeerGone) -> None:
        if isinstance(event, PeerSaid):
            self._send.send_nowait(event.message)

    async def next(self) -> object:
        with trio.fail_after(HANG_S):
            return await self._receive.receive()

    async def ready(self, name: str) -> PartsReady:
        """Return that a request is ready, whether or not it was said before that it is held."""
        message = await self.next()
        while not isinstance(message, PartsReady):
            message = await self.next()
        assert message.request == name
        return message


def wanted(name: str, *program: str, contact: str = "") -> PartsRequest:
    payload = encode(PartProgram(0, program, "", {}))
    need = PartNeed(contact=contact, payload=payload)
    return PartsRequest(name, (PlacedPart(0, need, ()),))


@asynccontextmanager
async def site_of_one_core() -> AsyncIterator[tuple[RtsSite, Said, RunTimeSystem]]:
    """A site that has one core, with a process that is ready on it: what comes next waits for no task."""
    said = Said()
    async with open_rts(cores=1) as rts, trio.open_nursery() as nursery:
        site = RtsSite("here", rts, said.put, tuple)
        await nursery.start(site.run)
        site.tell(wanted("first", "true"))
        site.tell(PartsGo("first", (await said.ready("first")).resources))
        assert await said.next() == PartsDone("first", "", True, ((0, ""),))
        yield site, said, rts
        nursery.cancel_scope.cancel()


async def test_requests_are_served_one_after_the_other_and_each_says_how_it_ended():
    async with site_of_one_core() as (site, said, _):
        site.tell(wanted("a", "sh", "-c", "echo $GSPC_PART $GSPC_RANK $GSPC_RESOURCES"))
        site.tell(wanted("b", "sh", "-c", "echo out; exit 3"))
        ready = await said.ready("a")
        site.tell(PartsGo("a", ready.resources))
        (resource,) = ready.resources[0][1]
        assert await said.ready("b"), "it has the resource when the other has ended, and not before"
        assert await said.next() == PartsDone("a", "", True, ((0, f"0 0 {resource}\n"),))
        site.tell(PartsGo("b", ready.resources))
        done = await said.next()
        assert isinstance(done, PartsDone)
        assert (done.request, done.ran, done.outputs) == ("b", True, ((0, "out\n"),))
        assert done.error.startswith("sh: exit status: sh -c")


async def test_one_that_waits_is_ready_or_runs_is_cancelled_and_nothing_is_held():
    async with site_of_one_core() as (site, said, rts):
        for name in ("runs", "waits"):
            site.tell(wanted(name, "sleep", "60"))
        ready = await said.ready("runs")
        site.tell(CancelParts("waits"))
        assert await said.next() == PartsDone("waits", "cancelled")
        site.tell(PartsGo("runs", ready.resources))
        site.tell(CancelParts("runs"))
        assert await said.next() == PartsDone("runs", "cancelled", True, ((0, ""),))
        site.tell(wanted("ready", "true"))
        await said.ready("ready")
        site.tell(CancelParts("ready"))
        assert await said.next() == PartsDone("ready", "cancelled", False, ((0, ""),))
        with trio.fail_after(HANG_S):
            async with open_resources(rts) as other:
                await other.acquire("core")


async def test_one_whose_process_is_lost_says_where_and_the_next_gets_another():
    async with site_of_one_core() as (site, said, _):
        site.tell(wanted("killer", "sh", "-c", "kill -9 $PPID; exec sleep 60"))
        site.tell(PartsGo("killer", (await said.ready("killer")).resources))
        done = await said.next()
        assert isinstance(done, PartsDone)
        assert (done.request, done.ran) == ("killer", True)
        assert "sh: lost" in done.error
        site.tell(wanted("next", "true"))
        site.tell(PartsGo("next", (await said.ready("next")).resources))
        assert await said.next() == PartsDone("next", "", True, ((0, ""),))


@pytest.mark.parametrize("is_started", [False, True])
async def test_one_whose_host_goes_says_so_before_its_start_and_after_it(is_started: bool):
    async with site_of_one_core() as (site, said, rts):
        site.tell(wanted("a", "sleep", "60"))
        ready = await said.ready("a")
        if is_started:
            site.tell(PartsGo("a", ready.resources))
        await rts.teardown([rif.rif_id for rif in (await rts.status()).rifs])
        done = await said.next()
        assert isinstance(done, PartsDone)
        assert (done.request, done.ran) == ("a", is_started)
        assert ("lost" if is_started else "was lost before all parts were ready") in done.error


async def test_what_cannot_be_had_is_refused_with_the_reason():
    async with site_of_one_core() as (site, said, _):
        payload = encode(PartProgram(0, ("true",), "", {}))
        for number, need in enumerate((PartNeed("gpu", payload=payload), PartNeed(payload=b"\xc1"))):
            site.tell(PartsRequest(str(number), (PlacedPart(0, need, ()),)))
            done = await said.next()
            assert isinstance(done, PartsDone)
            assert (done.request, done.ran, done.outputs) == (str(number), False, ())
            assert done.error.startswith("site here: ")
