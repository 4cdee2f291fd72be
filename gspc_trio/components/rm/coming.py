"""Hosts that are on their way: what they will bring may be waited for, and nothing else.

A host that comes for the first time may bring anything. One that was there before and is started again is
known: what neither the resources that are there nor those hosts could ever give is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from gspc_trio.components.rm.change import Changer
from gspc_trio.components.rm.parts import Form
from gspc_trio.components.rm.pool import Pool
from gspc_trio.components.rm.search import host_has_room, impossible, preferred
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.resources import Resource


class ComingHosts:
    """What is known of hosts that are on their way."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._changer = Changer(self._pool)
        self._known: dict[str, tuple[ResourceId, ...]] = {}
        self._unknown: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._known or self._unknown)

    def expect(self, name: str, resources: tuple[Resource, ...] | None, label: str) -> None:
        """This host is on its way, with these resources, or with what nobody knows yet."""
        self.settle(name)
        if resources is None:
            self._unknown[name] = None
            return
        self._known[name] = tuple(resource.resource_id for resource in resources)
        self._changer.add(resources, label)

    def settle(self, name: str) -> None:
        """This host is there, or does not come."""
        self._unknown.pop(name, None)
        gone = self._known.pop(name, ())
        if gone:
            self._changer.remove([self._pool.resources[resource_id] for resource_id in gone])

    def counts(self) -> dict[str, int]:
        """Return class -> number of resources that are known to come."""
        return {queue.name: queue.total for queue in self._pool.queues.values() if queue.total}

    def may_meet(self, pool: Pool, form: Form) -> bool:
        """Whether what comes may meet a form, by itself or with what is there (true when in doubt)."""
        if self._unknown:
            return True
        if not any(self._total(queue.name) for queue in form.counts):
            return False
        if any(queue.total + self._total(queue.name) < count for queue, count in form.counts.items()):
            return False
        all_there = all(self._total(queue.name) for queue in form.counts)
        if all_there and impossible(self._pool, Form(form.shape, self._pool.queue)) is None:
            return True
        if form.single or form.shape.same_host or not pool.resources:
            return False  # all of it would have to be on one of these hosts
        return self._may_complete(pool, form)

    def _may_complete(self, pool: Pool, form: Form) -> bool:
        """Whether these hosts and those that are there may meet it together, as far as is easily seen."""
        for need in form.needs:
            here = [name for name in need.preferences if name in self._pool.resources]
            if need.hard and not here and not preferred(pool, need):
                return False
        hosts = [*pool.hosts.values(), *self._pool.hosts.values()]
        return not form.sizes or any(host_has_room(host, form.sizes, empty=True) for host in hosts)

    def _total(self, class_name: str) -> int:
        queue = self._pool.queues.get(class_name)
        return queue.total if queue is not None else 0

    def waited_for(self, form: Form) -> Iterator[str]:
        """Yield the hosts that have, or may have, something of what the form needs."""
        yield from self._unknown
        classes = {queue.name for queue in form.counts}
        for name, resource_ids in self._known.items():
            if any(self._pool.resources[one].queue.name in classes for one in resource_ids):
                yield name
