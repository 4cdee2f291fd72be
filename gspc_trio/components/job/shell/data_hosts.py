"""Where the large values of a job can lie: hosts, their memory servers, and their resources."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import trio

from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.iml.errors import ImlError
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.host import is_top, resources_by_host
from gspc_trio.policies.transfer import TransferCost

LOOK_FIRST_S, LOOK_MAX_S = 0.1, 10.0
"""Pauses between looks for memory servers that are not there yet."""


class DataHosts:
    """Tells the policy of a job what hosts there are.

    Args:
        iml: the layer, which has the memory servers.
        policy: sends tasks where their data is, and fits.
    """

    def __init__(self, iml: Iml, policy: TransferCost) -> None:
        self._iml = iml
        self._policy = policy
        self._news = trio.Event()

    async def learn(self, rts: RunTimeSystem) -> None:
        """Ask which hosts there are, and how much the memory of each can hold, before the first task goes."""
        await self._look()
        for host, resources in (await resources_by_host(rts)).items():
            self.note_up(host, resources)

    async def follow(self) -> None:
        """Learn of memory servers as they come, until cancelled: a RIF starts that of its host for a job."""
        while True:
            pause_s = LOOK_FIRST_S
            while not self._policy.tops.keys() <= self._policy.memory_bytes.keys():
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)
                with suppress(ImlError):
                    await self._look()
            self._news = trio.Event()
            await self._news.wait()

    async def _look(self) -> None:
        for server in await self._iml.servers():
            self._policy.memory_bytes[server.host] = server.memory_bytes

    def note_up(self, host: str, resources: Iterable[Resource]) -> None:
        """A host has these resources."""
        for resource in resources:
            self._policy.note_resource(host, resource.resource_id, resource.resource_class)
            if is_top(resource):
                tops = self._policy.tops.setdefault(host, [])
                if resource.resource_id not in tops:
                    tops.append(resource.resource_id)
                    self._news.set()

    def note_lost(self, resource_ids: Iterable[ResourceId]) -> None:
        """These resources are not there any more."""
        lost, tops = set(resource_ids), self._policy.tops
        self._policy.forget_resources(lost)
        for host in list(tops):
            tops[host] = [top for top in tops[host] if top not in lost]
            if not tops[host]:
                del tops[host]
