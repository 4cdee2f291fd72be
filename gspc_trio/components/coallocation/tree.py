"""Tree of a co-allocation request: what its text and its XML say, with the places where they say it (COA-1).

Trees are equal if they say the same; where it stands in the text does not matter. They are frozen by their
setters: so they are made in half the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from attrs import define, field, setters

TEXT_BYTES_MAX = 16 * 1024 * 1024
"""How long the text of a request may be, as UTF-8."""

DEPTH_MAX = 64
"""How deep parentheses, or elements of XML, may be nested."""

JOBS_MAX = 100_000
"""How many jobs a request may have; each part of a ``+`` counts, too."""

Value: TypeAlias = "str | tuple[Value, ...]"
"""A value of an option: a text, or a list of values in parentheses."""

Place: TypeAlias = tuple[int, int]
"""Line and column of a character, both from 1; (0, 0) if it stands in no text."""

NOWHERE: Place = (0, 0)


class RslError(ValueError):
    """A request cannot be read, or says what cannot be.

    Attributes:
        message: what is wrong, without the place.
        line, column: where, both from 1; 0 if it is not about a place in a text.
    """

    def __init__(self, message: str, place: Place = NOWHERE) -> None:
        self.message: str = message
        self.line: int = place[0]
        self.column: int = place[1]
        super().__init__(f"line {self.line}, column {self.column}: {message}" if self.line else message)


@define(unsafe_hash=True, on_setattr=setters.frozen)
class Option:
    """One option of a request: ``(count=4 2 1)``.

    Attributes:
        name: in small letters, with ``_`` as its usual name has it.
        values: at least one.
        operator: ``= != < <= >`` or ``>=``.
        place: of its name.
        places: of the first character of each value.
    """

    name: str
    values: tuple[Value, ...]
    operator: str = "="
    place: Place = field(default=NOWHERE, eq=False)
    places: tuple[Place, ...] = field(default=(), eq=False)

    def place_of(self, number: int) -> Place:
        """Return where a value stands, or the option if that is not known."""
        return self.places[number] if number < len(self.places) else self.place


@define(unsafe_hash=True, on_setattr=setters.frozen)
class DescribedJob:
    """A job, or a part of one, by its options: ``&(executable=a)(count=2)``."""

    options: tuple[Option, ...] = ()
    place: Place = field(default=NOWHERE, eq=False)


@define(unsafe_hash=True, on_setattr=setters.frozen)
class NamedJob:
    """A job, or a part of one, that is described elsewhere, by its name: ``climate(wait=2)``.

    Attributes:
        name: of the job.
        options: added to those of the job, or in place of them.
        place: of the name.
    """

    name: str
    options: tuple[Option, ...] = ()
    place: Place = field(default=NOWHERE, eq=False)


@define(unsafe_hash=True, on_setattr=setters.frozen)
class SingleStage:
    """One job whose parts get their resources together, and start together: ``+(hot)(cold)``.

    Attributes:
        parts: at least one.
        options: of the job as a whole.
        place: of the ``+``.
    """

    parts: tuple[DescribedJob | NamedJob, ...]
    options: tuple[Option, ...] = ()
    place: Place = field(default=NOWHERE, eq=False)


@define(unsafe_hash=True, on_setattr=setters.frozen)
class Multistage:
    """Requests in stages: ``*(*(a)(b))(c)``.

    Attributes:
        stages: at least one.
        options: of all jobs below that do not say otherwise.
        place: of the ``*``.
    """

    stages: tuple[Request, ...]
    options: tuple[Option, ...] = ()
    place: Place = field(default=NOWHERE, eq=False)


Job: TypeAlias = "DescribedJob | NamedJob | SingleStage"
"""What runs as one: it has a number, and waits for others."""

Request: TypeAlias = "Multistage | Job"


def jobs_of(request: Request) -> Iterator[Job]:
    """Yield the jobs of a request in the order of the text; the first one has the number 1."""
    stack: list[Request] = [request]
    while stack:
        one = stack.pop()
        if isinstance(one, Multistage):
            stack.extend(reversed(one.stages))
        else:
            yield one


def services_of(request: Request) -> Iterator[tuple[Request, int]]:
    """Yield each request of a tree, breadth first, and the number of the service above it.

    The first one has the service number 1, and 0 above it. Parts of a ``+`` have no service of their own.
    """
    waiting: deque[tuple[Request, int]] = deque([(request, 0)])
    number = 0
    while waiting:
        one, above = waiting.popleft()
        number += 1
        yield one, above
        if isinstance(one, Multistage):
            waiting.extend((stage, number) for stage in one.stages)


def stages_of_jobs(request: Request) -> list[tuple[int, ...]]:
    """Return for each job, in the order of the text, the numbers of the services of its stages, from the top.

    They are those of :func:`services_of`.
    """
    numbers = {id(one): number for number, (one, _) in enumerate(services_of(request), 1)}
    found: list[tuple[int, ...]] = []
    stack: list[tuple[Request, tuple[int, ...]]] = [(request, ())]
    while stack:
        one, above = stack.pop()
        if isinstance(one, Multistage):
            here = (*above, numbers[id(one)])
            stack.extend((stage, here) for stage in reversed(one.stages))
        else:
            found.append(above)
    return found
