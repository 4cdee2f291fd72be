"""The fence of a RIF: it refuses grants that have lapsed (architecture: credit, grants, fences).

A grant older than the newest one used on a resource, or on an ancestor or a descendant of it, has lapsed: the
RM gives a resource to others only after it was given back. A sibling's older grant stays valid.

Which grants are used is what jobs say. :meth:`Fence.doubts` says which uses keep a grant from being honoured;
should one of them turn out never to have been given, :meth:`Fence.correct` undoes its use.
"""

from __future__ import annotations

from collections.abc import Iterator

from gspc_trio.core.ids import NO_GRANT, GrantId, ResourceId
from gspc_trio.core.resources import Resource


class Fence:
    """Newest grants of the resources of one RIF; its size is that of their DAG."""

    def __init__(self) -> None:
        self._ancestors: dict[ResourceId, tuple[ResourceId, ...]] = {}
        self._newest: dict[ResourceId, GrantId] = {}
        self._users: dict[ResourceId, int] = {}
        self._newest_below: dict[ResourceId, GrantId] = {}
        self._before: dict[ResourceId, GrantId] = {}
        self._closed: dict[ResourceId, GrantId] = {}
        self._newest_of_all = NO_GRANT
        self._ahead: dict[int, int] = {}

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self._ancestors

    def add(self, resource: Resource) -> None:
        """Watch over a resource; its parents come first.

        Grants seen before are not for it: they were given before it was there.
        """
        above: dict[ResourceId, None] = {}
        for parent in resource.parents:
            above[parent] = None
            above.update(dict.fromkeys(self._ancestors.get(parent, ())))
        self._ancestors[resource.resource_id] = tuple(above)
        self._before[resource.resource_id] = self._newest_of_all
        self._closed[resource.resource_id] = NO_GRANT

    def remove(self, resource_id: ResourceId) -> None:
        """Forget a resource; what its grants mean for its relatives stays."""
        newest = self._newest.pop(resource_id, NO_GRANT)
        for name in self.descendants(resource_id):
            self._closed[name] = max(self._closed[name], newest)
        del self._ancestors[resource_id], self._before[resource_id], self._closed[resource_id]
        self._users.pop(resource_id, None)
        self._newest_below.pop(resource_id, None)

    def ancestors(self, resource_id: ResourceId) -> tuple[ResourceId, ...]:
        """Return the ids of what contains the resource."""
        return self._ancestors[resource_id]

    def descendants(self, resource_id: ResourceId) -> Iterator[ResourceId]:
        """Iterate over the ids of what the resource contains; it costs a look at all resources."""
        return (name for name, above in self._ancestors.items() if resource_id in above)

    def allow(self, newest: GrantId) -> None:
        """Honour grants of this epoch up to this one, and none of an epoch of which nothing was said.

        Before anything was said all are honoured.
        """
        epoch, number = newest
        self._ahead[epoch] = max(self._ahead.get(epoch, 0), number)

    def newest(self, resource_id: ResourceId) -> GrantId:
        """Return the newest grant used on the resource itself."""
        return self._newest.get(resource_id, NO_GRANT)

    def objection(self, resource_id: ResourceId, grant_id: GrantId) -> str:
        """Return why the grant is not honoured on the resource, or ""."""
        if self._ahead and grant_id[1] > self._ahead.get(grant_id[0], 0):
            return f"{resource_id}: grant {grant_id} was never given"
        if grant_id <= self._closed[resource_id] or grant_id <= self._before[resource_id]:
            return f"{resource_id}: grant {grant_id} was revoked, or is older than the resource"
        newest = self._newest
        newer = max(newest.get(resource_id, NO_GRANT), self._newest_below.get(resource_id, NO_GRANT))
        if newer <= grant_id:
            for name in self._ancestors[resource_id]:
                newer = max(newer, newest.get(name, NO_GRANT))
        if newer > grant_id:
            return (
                f"{resource_id}: grant {grant_id} is older than {newer}, which was used on it or a relative"
            )
        return ""

    def doubts(self, resource_id: ResourceId, grant_id: GrantId) -> list[tuple[ResourceId, GrantId, int]]:
        """Return (resource, grant, user) of the uses that stand against a grant, if nothing else does.

        Where it is its age that does, compared with all uses before the resource was there, that is the grant
        itself, with the user 0.
        """
        if grant_id[1] > self._ahead.get(grant_id[0], grant_id[1]) or grant_id <= self._closed[resource_id]:
            return []
        relatives = (resource_id, *self._ancestors[resource_id], *self.descendants(resource_id))
        found = [(name, self.newest(name), self._users[name]) for name in relatives if name in self._users]
        own = [(resource_id, grant_id, 0)] if grant_id <= self._before[resource_id] else []
        return [one for one in found if one[1] > grant_id] + own

    def correct(self, resource_id: ResourceId, grant_id: GrantId, user: int, newest: GrantId) -> None:
        """Take in that ``newest`` is the newest grant of a resource that was given, where one was in doubt.

        Args:
            resource_id: which; it is there.
            grant_id, user: as :meth:`doubts` said.
            newest: what is true.
        """
        if NO_GRANT < newest <= self._before[resource_id]:  # it was given when the resource was there
            self._before[resource_id] = (newest[0], newest[1] - 1)
        if newest < grant_id == self.newest(resource_id) and self._users[resource_id] == user:
            self._newest[resource_id] = newest
            for name in self._ancestors[resource_id]:
                if self._newest_below.get(name) == grant_id:
                    self._newest_below[name] = max(map(self.newest, self.descendants(name)))

    def use(self, resource_id: ResourceId, grant_id: GrantId, user: int = 0) -> None:
        """Note the use of a grant on a resource: older ones have lapsed on it and its relatives.

        Args:
            resource_id, grant_id: of which.
            user: number of the connection of the job that uses it.
        """
        before = self._newest.get(resource_id, NO_GRANT)
        if grant_id < before:
            return
        self._users[resource_id] = user
        if grant_id == before:
            return
        self._newest[resource_id] = grant_id
        self.note(grant_id)
        below = self._newest_below
        for name in self._ancestors[resource_id]:
            if grant_id > below.get(name, NO_GRANT):
                below[name] = grant_id

    def revoke(self, resource_id: ResourceId, grant_id: GrantId) -> None:
        """Honour this grant, and older ones, no longer on this resource."""
        self._closed[resource_id] = max(self._closed[resource_id], grant_id)
        self.note(grant_id)

    def note(self, grant_id: GrantId) -> None:
        """Honour this grant, and older ones, on no resource that is added later."""
        self._newest_of_all = max(self._newest_of_all, grant_id)
