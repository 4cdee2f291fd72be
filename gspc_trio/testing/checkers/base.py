"""Base of all checkers: the error they raise, and which resources contain each other."""

from __future__ import annotations

from collections.abc import Container, Iterable

from gspc_trio.components.rm.events import Added
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.resources import Resource


class Broken(AssertionError):
    """Something that must hold does not.

    Args:
        what: for people.
        about: words that the story is about: ``task 3 of j1``, ``r1.core0``.
    """

    def __init__(self, what: str, *about: str) -> None:
        super().__init__(what)
        self.about = about


class Family:
    """Which resources contain each other."""

    def __init__(self) -> None:
        self._above: dict[ResourceId, frozenset[ResourceId]] = {}
        self._relatives: dict[ResourceId, tuple[ResourceId, ...]] = {}
        self._resources: dict[ResourceId, Resource] = {}

    def add(self, event: Added) -> None:
        """Resources are there; a parent comes before its children."""
        for resource in event.resources:
            above: set[ResourceId] = set()
            for parent in resource.parents:
                above |= {parent, *self._above.get(parent, ())}
            self._above[resource.resource_id] = frozenset(above)
            self._resources[resource.resource_id] = resource
        self._relatives.clear()

    def class_of(self, name: ResourceId) -> str:
        """Return the class of a resource, "" if nobody has ever added it."""
        found = self._resources.get(name)
        return found.resource_class if found is not None else ""

    def memory_bytes(self, name: ResourceId) -> int:
        """Return how much memory a resource offers."""
        found = self._resources.get(name)
        return found.memory_bytes if found is not None else 0

    def suits(self, name: ResourceId, features: Iterable[str]) -> bool:
        """Whether the host of a resource has these features: it, or what contains it, states them."""
        over = (name, *self._above.get(name, ()))
        stated = {each for one in over if one in self._resources for each in self._resources[one].features}
        return stated.issuperset(features)

    def is_leaf_class(self, resource_class: str) -> bool:
        """Whether no resource of a class has ever contained others."""
        inner = {self.class_of(above) for over in self._above.values() for above in over}
        return resource_class not in inner

    def units(self, name: ResourceId, there: Container[ResourceId]) -> int:
        """Return how many leaves of the hierarchy a resource has, of those that are there."""
        near = self.near(name)
        below = [other for other in near if name in self._above.get(other, ()) and other in there]
        inner = {above for other in below for above in self._above[other]}
        return sum(1 for other in below if other not in inner) or 1

    def is_below(self, name: ResourceId, tops: Container[ResourceId]) -> bool:
        """Whether a resource is one of these, or contained in one."""
        return name in tops or any(above in tops for above in self._above.get(name, ()))

    def near(self, name: ResourceId) -> tuple[ResourceId, ...]:
        """Return the resource with its ancestors and descendants."""
        found = self._relatives.get(name)
        if found is None:
            above = self._above.get(name, frozenset())
            below = [other for other, over in self._above.items() if name in over]
            found = self._relatives[name] = (name, *sorted(above), *below)
        return found
