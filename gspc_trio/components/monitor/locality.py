"""From where tasks take data of memory layers: their own host, its rack, or another rack (ASP-10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from gspc_trio.components.monitor.frames import FRAME_S, LATE_S, frame_of
from gspc_trio.components.monitor.tables import Row, Table
from gspc_trio.core.ids import Count, JobId
from gspc_trio.core.task import Outcome

DISTANCES = ("node_bytes", "rack_bytes", "inter_rack_bytes")
"""Columns of the table: bytes that lay on the host of the task, on another one of its rack, elsewhere."""

EXPECTED = ("80-90 %", "5-10 %", "2-5 %")
"""What ASPIDE expects of these (D2.1)."""

LOCALITY = Table("locality", ("host", "job"), counts=DISTANCES, of_run=("job",))
"""From where data came."""

NUMBER_MAX = 1 << 62


class DataRead(Struct, frozen=True):
    """What tasks of a job have taken from a host in one frame.

    Attributes:
        begin_s: when the frame began, in seconds since 1970.
        job: of the tasks.
        source: host on which the data lay.
        read_bytes: how much it was.
    """

    begin_s: Count
    job: JobId
    source: str
    read_bytes: Count


class DataReads:
    """The data that tasks of one host take, added up by frame, job and source, and their I/O errors.

    Attributes:
        is_wanted: whether somebody wants to know; until then nothing is noted.
        io_errors: how many of them have failed because a device has.
    """

    def __init__(self) -> None:
        self.is_wanted: bool = False
        self.io_errors: int = 0
        self._sums: dict[tuple[int, JobId, str], int] = {}
        self._closed_s = 0

    def ended(self, outcomes: Iterable[Outcome]) -> None:
        """Attempts of this host have ended."""
        for one in outcomes:
            if one.error is not None and one.error.is_of_device:
                self.io_errors += 1

    def took(self, job: JobId, source: str, size_bytes: int, at_s: float) -> None:
        """A task has taken data.

        Args:
            job: of the task.
            source: host on which it lay.
            size_bytes: its size.
            at_s: when, in seconds since 1970; what was told of an earlier frame is in the oldest open one.
        """
        if not self.is_wanted:
            return
        key = max(frame_of(at_s), self._closed_s), job, source
        self._sums[key] = self._sums.get(key, 0) + size_bytes

    def close(self, at_s: float) -> tuple[DataRead, ...]:
        """Return the frames that are over; each is returned once.

        Args:
            at_s: the time, in seconds since 1970.
        """
        over_s = frame_of(at_s - LATE_S)
        self._closed_s = max(self._closed_s, over_s)
        keys = sorted(key for key in self._sums if key[0] < over_s)
        return tuple(DataRead(*key, self._sums.pop(key)) for key in keys)


def distance(host: str, source: str, racks: Mapping[str, str]) -> str:
    """Return the column of what a task on a host takes from another one.

    Args:
        host: of the task.
        source: on which the data lies.
        racks: host -> its rack. Those of which nothing is known are in one rack together.

    >>> racks = {"a": "left", "b": "left", "c": "right"}
    >>> [distance("a", source, racks) for source in ("a", "b", "c", "d")]
    ['node_bytes', 'rack_bytes', 'inter_rack_bytes', 'inter_rack_bytes']
    """
    if host == source:
        return DISTANCES[0]
    return DISTANCES[1] if racks.get(host, "") == racks.get(source, "") else DISTANCES[2]


def rows_of_reads(host: str, reads: Iterable[DataRead], racks: Mapping[str, str]) -> Iterator[Row]:
    """Yield what a host has told as the store keeps it.

    Args:
        host: that has told it.
        reads: what it has told.
        racks: host -> its rack.

    Raises:
        ValueError: no host can have told this.
    """
    sums: dict[tuple[int, JobId], dict[str, int]] = {}
    for one in reads:
        if not (0 <= one.begin_s < NUMBER_MAX and 0 <= one.read_bytes < NUMBER_MAX):
            raise ValueError(f"no task of {host} has taken so much")
        found, name = sums.setdefault((one.begin_s, one.job), {}), distance(host, one.source, racks)
        found[name] = found.get(name, 0) + one.read_bytes
    for (begin_s, job), found in sums.items():
        yield Row(begin_s, (host, job), float(FRAME_S), found)


def read_topology(text: str) -> dict[str, str]:
    """Return the rack of each host.

    Args:
        text: a line for each rack, ``RACK: HOST HOST ...``; what follows # is for people.

    Raises:
        ValueError: a line is none of these, or names a host again.

    >>> read_topology("left: a b  # by the door")
    {'a': 'left', 'b': 'left'}
    """
    racks: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        rack, colon, hosts = line.partition(":")
        rack = rack.strip()
        if not colon or not rack or len(rack.split()) > 1 or not hosts.split():
            raise ValueError(f"line {number}: {line!r} is not RACK: HOST HOST ...")
        for host in hosts.split():
            if racks.setdefault(host, rack) != rack:
                raise ValueError(f"line {number}: host {host} is in rack {racks[host]} already")
    return racks
