"""Resources and their hierarchy (GSPC19 2, table 1: Res, RClass, DAG)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import index
from typing import SupportsIndex

from attrs import field, frozen
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.ids import Count, ResourceId

MEMORY_CLASS = "memory"
"""Class of what stands for a memory server: its grant has a piece of its host's memory (RM-8)."""


LENT = "+"
"""Before the number in the id of a resource that a waiting task has lent: ``r1.core0+1``."""


_FEATURE = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")


class BadResources(ValueError):
    """A resource description contradicts itself or what is there already."""


def checked_cores(cores: object) -> int:
    """Return a number of cores to offer, 0 for what there is.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is negative.
    """
    if not isinstance(cores, SupportsIndex):
        raise TypeError(f"cores is a whole number, 0 for what this machine has, not {cores!r}")
    number = index(cores)
    if number < 0:
        raise ValueError(f"cores is 0, for what this machine has, or more, not {number}")
    return number


def is_feature(text: str) -> bool:
    """Return whether a feature can have this name."""
    return _FEATURE.fullmatch(text) is not None


def checked_feature(feature: object) -> str:
    """Return the name of a feature of hosts.

    Raises:
        TypeError: it is no text.
        ValueError: it has a character that names of features do not have, or too many.
    """
    if not isinstance(feature, str):
        raise TypeError(f"a feature is a text, not {feature!r}")
    if not is_feature(feature):
        raise ValueError(f"{feature!r:.80} can be no feature: it has 1 to 64 letters, digits and _.:+-")
    return feature


def parse_features(text: str) -> tuple[str, ...]:
    """Return the features in a text such as ``ssd,infiniband``, each once; none for "".

    Raises:
        ValueError: one of them can be no feature.
    """
    return tuple(dict.fromkeys(map(checked_feature, text.split(",")))) if text else ()


class Resource(Struct, frozen=True):
    """A thing that one worker stands for.

    Attributes:
        resource_id: unique in the RTS.
        resource_class: ``node``, ``socket``, ``core``, ``gpu`` or any other word.
        parents: ids of the resources that contain it; a GPU may hang under two sockets (RM-1).
        cpus: numbers of the CPUs it stands for; empty means no pinning.
        memory_bytes: memory it offers; 0 means unknown.
        gpus: indices of the GPUs that its worker may see.
        processor: of a node: model of its processor, or "".
        features: of its host; those without parents state them.
    """

    resource_id: ResourceId
    resource_class: str
    parents: tuple[ResourceId, ...] = ()
    cpus: tuple[Count, ...] = ()
    memory_bytes: Count = 0
    gpus: tuple[Count, ...] = ()
    processor: str = ""
    features: tuple[str, ...] = ()


def lender_of(resource_id: ResourceId) -> ResourceId:
    """Return the resource that was there first: ``r1.core0`` of ``r1.core0+1`` and of itself."""
    return resource_id.partition(LENT)[0]


def is_lent(resource_id: ResourceId) -> bool:
    """Return whether this is no resource of its own, but one that a waiting task has lent."""
    return LENT in resource_id


def with_features(resources: Iterable[Resource], features: Iterable[str]) -> tuple[Resource, ...]:
    """Return the resources of a host that has these features, too."""
    more = tuple(features)
    if not more:
        return tuple(resources)
    return tuple(
        one if one.parents else replace(one, features=tuple(sorted({*one.features, *more})))
        for one in resources
    )


def _as_tuple(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    return tuple(resources)


@frozen
class ResourceDag:
    """Resources of one host, parents before children.

    Raises:
        BadResources: an id twice, a parent that is not there, or a cycle.
    """

    resources: tuple[Resource, ...] = field(converter=_as_tuple)

    def __attrs_post_init__(self) -> None:
        ids = [resource.resource_id for resource in self.resources]
        if len(set(ids)) != len(ids):
            twice = sorted({name for name in ids if ids.count(name) > 1})
            raise BadResources(f"resource ids named twice: {', '.join(twice)}")
        known = set(ids)
        for resource in self.resources:
            for parent in resource.parents:
                if parent not in known:
                    raise BadResources(
                        f"{resource.resource_id} has the parent {parent}, which is not in the DAG"
                    )
        object.__setattr__(self, "resources", tuple(_parents_first(self.resources)))

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def __len__(self) -> int:
        return len(self.resources)

    @property
    def ids(self) -> tuple[ResourceId, ...]:
        """The ids, parents before children."""
        return tuple(resource.resource_id for resource in self.resources)


def _parents_first(resources: tuple[Resource, ...]) -> list[Resource]:
    """Order parents before children, otherwise as given; raise BadResources on a cycle."""
    waiting = {resource.resource_id: set(resource.parents) for resource in resources}
    children: dict[ResourceId, list[Resource]] = {}
    for resource in resources:
        for parent in resource.parents:
            children.setdefault(parent, []).append(resource)
    if all(not seen for seen in waiting.values()):
        return list(resources)
    placed = set()
    in_order = True
    for resource in resources:
        in_order = in_order and all(parent in placed for parent in resource.parents)
        placed.add(resource.resource_id)
    if in_order:
        return list(resources)
    ready = [resource for resource in resources if not resource.parents]
    ordered: list[Resource] = []
    for resource in ready:
        ordered.append(resource)
        for child in children.get(resource.resource_id, ()):
            missing = waiting[child.resource_id]
            missing.discard(resource.resource_id)
            if not missing:
                ready.append(child)
    if len(ordered) != len(resources):
        rest = sorted(set(waiting) - {resource.resource_id for resource in ordered})
        raise BadResources(f"the parents of these resources form a cycle: {', '.join(rest)}")
    return ordered


def parse_resource(text: str) -> Resource:
    """Return the resource that ``ID=CLASS`` or ``ID=CLASS:PARENT,PARENT`` describes.

    Raises:
        ValueError: the text has another form.
    """
    name, equals, rest = text.partition("=")
    resource_class, _, parents = rest.partition(":")
    if not (name and equals and resource_class):
        raise ValueError(f"{text}: this is no resource; write ID=CLASS or ID=CLASS:PARENT,PARENT")
    return Resource(name, resource_class, tuple(filter(None, parents.split(","))))
