"""The hierarchy of resources: what is below what, and which of it is free, held or blocked (RM-3, RM-4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.records.facts import GrantChanged, ResourceChanged


class Use(StrEnum):
    """What becomes of a resource."""

    FREE = "free"
    HELD = "held"
    BLOCKED = "blocked"


class Holder(Struct, frozen=True):
    """Who holds a resource, under which grant, since when (time of the stream)."""

    job: JobId
    grant_id: GrantId
    since_s: float


class Row(Struct, frozen=True):
    """One line of the tree; a host is a line of its own, without a resource."""

    key: str
    depth: int
    host: str
    resource: ResourceChanged | None
    children: int
    is_open: bool


def holders(grants: Iterable[GrantChanged]) -> dict[ResourceId, Holder]:
    """Return who holds which resource."""
    return {
        resource_id: Holder(grant.job, grant.grant_id, grant.at_s)
        for grant in grants
        for resource_id in grant.resources
    }


class Hierarchy:
    """The resources of all hosts.

    Args:
        resources: by id; a parent that is not among them is left out.
    """

    def __init__(self, resources: Mapping[ResourceId, ResourceChanged]) -> None:
        self.resources = resources
        self.hosts: dict[str, list[ResourceId]] = {}
        self.children: dict[ResourceId, list[ResourceId]] = {}
        for resource in resources.values():
            parents = [parent for parent in resource.parents if parent in resources]
            for parent in parents:
                self.children.setdefault(parent, []).append(resource.resource_id)
            if not parents:
                self.hosts.setdefault(_host(resource), []).append(resource.resource_id)
        self._leaves: dict[ResourceId, frozenset[ResourceId] | None] = {}
        self.leaf_total: int = sum(resource_id not in self.children for resource_id in resources)

    def leaves_below(self, resource_id: ResourceId) -> frozenset[ResourceId]:
        """Return the resources at or below this one that have nothing below them."""
        known = self._leaves.get(resource_id)
        if known is None:
            below = self.children.get(resource_id)
            if below is None:
                known = frozenset((resource_id,))
            else:
                known = frozenset[ResourceId]().union(*(self.leaves_below(child) for child in below))
            self._leaves[resource_id] = known
        return known

    def leaves_in_use(self, held: Iterable[ResourceId]) -> int:
        """Return how many leaves are held, by themselves or with something above them."""
        used: set[ResourceId] = set()
        for resource_id in held:
            if resource_id in self.resources:
                used |= self.leaves_below(resource_id)
        return len(used)

    def ancestors(self, resource_id: ResourceId) -> list[ResourceId]:
        """Return everything above a resource, nearest first."""
        found: dict[ResourceId, None] = {}
        waiting = [resource_id]
        for name in waiting:
            resource = self.resources.get(name)
            for parent in resource.parents if resource is not None else ():
                if parent in self.resources and parent not in found:
                    found[parent] = None
                    waiting.append(parent)
        return list(found)

    def use(
        self, resource_id: ResourceId, held: Mapping[ResourceId, Holder]
    ) -> tuple[Use, ResourceId | None]:
        """Return whether a resource is free, held or blocked, and the relative that is held."""
        if resource_id in held:
            return Use.HELD, resource_id
        for ancestor in self.ancestors(resource_id):
            if ancestor in held:
                return Use.BLOCKED, ancestor
        waiting = list(self.children.get(resource_id, ()))
        for name in waiting:
            if name in held:
                return Use.BLOCKED, name
            waiting += self.children.get(name, ())
        return Use.FREE, None

    def rows(self, folded: frozenset[str], unfolded: frozenset[str], text: str = "") -> list[Row]:
        """Return the lines of the tree that are to be seen.

        With at most :data:`OPEN_MAX` resources everything is open but ``folded``; with more, all is closed
        but ``unfolded``. With ``text``, only resources whose id or class contains it, and what is above them.
        """
        opened = (lambda key: key not in folded) if len(self.resources) <= OPEN_MAX else unfolded.__contains__
        wanted = self._with_ancestors(text) if text else None
        rows: list[Row] = []
        for host, roots in self.hosts.items():
            mine = [root for root in roots if wanted is None or root in wanted]
            if not mine:
                continue
            key = f"host {host}"
            is_open = wanted is not None or opened(key)
            rows.append(Row(key, 0, host, None, len(mine), is_open))
            stack = [(root, 1) for root in reversed(mine)] if is_open else []
            seen: set[ResourceId] = set()
            while stack:
                name, depth = stack.pop()
                if name in seen:
                    continue  # below two parents: shown once
                seen.add(name)
                below = self.children.get(name, [])
                if wanted is not None:
                    below = [child for child in below if child in wanted]
                is_open = bool(below) and (wanted is not None or opened(name))
                rows.append(Row(name, depth, host, self.resources[name], len(below), is_open))
                if is_open:
                    stack += [(child, depth + 1) for child in reversed(below)]
        return rows

    def _with_ancestors(self, text: str) -> set[ResourceId]:
        text = text.lower()
        wanted: set[ResourceId] = set()
        for resource in self.resources.values():
            fields = (resource.resource_id, resource.resource_class, resource.host)
            if any(text in part.lower() for part in fields):
                wanted.add(resource.resource_id)
                wanted.update(self.ancestors(resource.resource_id))
        return wanted


OPEN_MAX = 200
"""Resources that are all shown at first; more are shown as hosts that can be opened."""


def _host(resource: ResourceChanged) -> str:
    return resource.host or resource.resource_id.partition(".")[0]
