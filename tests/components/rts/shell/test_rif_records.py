"""Records of a RIF that make no sense end its connection, and nothing else of the run-time system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
import trio

from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.components.rif.messages import CannotStart, RifHello
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import PeerGone
from gspc_trio.records.facts import (
    RECORD_TYPES,
    JobChanged,
    Record,
    TaskChanged,
    TaskCounts,
    WorkerChanged,
)
from gspc_trio.records.messages import RecordBatch

TOKEN = b"t" * 32


class LyingRifs:
    """A strategy whose RIFs come over the network, say one thing, and end when nobody listens any more."""

    def __init__(self, said: Sequence[bytes]) -> None:
        self.said = list(said)
        self.network = Network(wire_codec, TOKEN)

    async def run(self, order: RifOrder) -> str:
        connection = self.network.connect(
            order.rts_address("ws:"), role="rif", name=order.rif_id, expect="rts"
        )
        async with connection as peer:
            peer.post(RifHello(order.rif_id, order.incarnation, 1, order.host, "memory:liar", ()))
            try:
                await peer.receive()  # it is up
                if self.said:
                    peer._link._outbox.append(self.said.pop(0))  # type: ignore[attr-defined]
                    peer.post(CannotStart("this wakes who sends"))
                while True:
                    await peer.receive()
            except PeerGone:
                pass
        return "it has lied"


def batch(kind: type[Record], *fields: Any) -> bytes:
    """Return an item of a frame with one record whose fields are whatever they are."""
    record = [RECORD_TYPES.index(kind), *fields]
    packed: bytes = msgpack.packb([WIRE_TYPES.index(RecordBatch), [record]])
    return packed


LIES = {
    batch(TaskCounts, 0.0, "j1", {"bogus": 1}): "no TaskState is 'bogus'",
    batch(TaskChanged, float("inf"), "j1", 1, "finished"): "inf is no finite number",
    batch(TaskChanged, 1.0, "j1", 1, "finished"): "a RIF tells of itself, not TaskChanged of others",
    batch(JobChanged, 1.0, "j1", "finished"): "a RIF tells of itself, not JobChanged of others",
    batch(WorkerChanged, 1.0, "r9.core0", "idle"): "a RIF tells of itself, not WorkerChanged of others",
}


async def test_a_rif_that_tells_what_cannot_be_loses_its_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rifs, network = LyingRifs(list(LIES)), Network(wire_codec, TOKEN)
    limits = Limits(retry_delays_s=(0.0,) * 10)
    opening = open_rts_service(
        network, listen=("ws://127.0.0.1:0",), strategies={"lying": rifs}, limits=limits
    )
    with trio.fail_after(60):
        async with opening as service:
            connection = network.connect(service.address, role="control", name="user", expect="rts")
            async with connection as peer:
                rts = RunTimeSystem(network, service.address, peer)
                assert (await rts.bootstrap(["h"], "lying")).failed == {}
                untold = list(LIES.values())
                while untold:
                    status = await rts.status()
                    untold = [one for one in untold if not any(one in line for line in caplog.messages)]
                assert [rif.rif_id for rif in status.rifs] == ["r1"]
                assert peer.reason == ""
