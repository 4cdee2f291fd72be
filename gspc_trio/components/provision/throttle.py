"""Throttles: how many jobs and file transfers may be under way, in all and at each site (SWF-8)."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from attrs import frozen

from gspc_trio.core.similar import did_you_mean


class ThrottleKind(StrEnum):
    """What a throttle counts, by the word in its name."""

    JOB = "job"
    FILE_TRANSFER = "file_transfers"
    FILE_OPERATION = "file_operations"


Limit: TypeAlias = int | None
"""How many at once; None for any number."""

OFF = "off"
"""How a user says that there is no limit."""

DEFAULTS: Mapping[str, Limit] = MappingProxyType(
    {
        **{
            f"{host}{kind}{submit}": None
            for host in ("", "host_")
            for kind in ThrottleKind
            for submit in ("", "_submit")
        },
        "job_submit": 4,
        "host_job_submit": 2,
        "file_transfers": 4,
        "file_operations": 8,
    }
)
"""All throttles by name: ``[host_](job|file_transfers|file_operations)[_submit]``."""


OF_FILES = frozenset(name for name in DEFAULTS if "file_" in name)
"""Those of file transfers and file operations."""


def parse_throttles(given: Mapping[str, object]) -> dict[str, Limit]:
    """Return the throttles that a user has given, by name; those that he has not given are not in it.

    Args:
        given: values by name: a positive whole number, also as text, or ``off``.

    Raises:
        ValueError: there is no such throttle, or the value is none; the message is one line for people.
    """
    return {name: _limit(name, value) for name, value in given.items()}


def _limit(name: str, value: object) -> Limit:
    if name not in DEFAULTS:
        hint = did_you_mean(name, DEFAULTS) or "; there are: " + ", ".join(sorted(DEFAULTS))
        raise ValueError(f"there is no throttle {name!r}{hint}")
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if text == OFF:
        return None
    if _WHOLE.fullmatch(text) is None or not int(text):
        raise ValueError(f"throttle {name}: {value!r} is no limit; write a whole number from 1 on, or off")
    return int(text)


_WHOLE = re.compile(r"[0-9]{1,18}")


@frozen
class _Entry:
    """One that waits or is under way."""

    kind: ThrottleKind
    host: str


class _Line:
    """Those of one kind that wait.

    Attributes:
        hosts: who waits for each host, first come first.
        eligible: hosts for which somebody waits and whose own throttles have room, in the order of turns.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, OrderedDict[str, None]] = {}
        self.eligible: OrderedDict[str, None] = OrderedDict()


class ThrottleGate:
    """Who may start now, and who waits.

    A throttle without ``_submit`` counts one from its start to its end, one with ``_submit`` from its start
    until the call that submits it has returned. Throttles with ``host_`` count for each host by itself, the
    others all hosts together. One starts when all its throttles have room. Hosts take turns; at one host the
    first who came starts first. So neither a full host nor one with many who wait holds up another.

    Args:
        limits: those that differ from :data:`DEFAULTS`, see :func:`parse_throttles`.
    """

    def __init__(self, limits: Mapping[str, Limit] = MappingProxyType({})) -> None:
        self._limits = {**DEFAULTS, **limits}
        self._host_limits: dict[str, dict[str, Limit]] = {}
        self._lines = {kind: _Line() for kind in ThrottleKind}
        self._waiting: dict[str, _Entry] = {}
        self._started: dict[str, _Entry] = {}
        self._submitting: set[str] = set()
        self._counts: Counter[tuple[str, str]] = Counter()
        """By name of the throttle and host, which is "" for all hosts together."""

    def set_host(self, host: str, limits: Mapping[str, Limit]) -> None:
        """State throttles ``host_`` of one host that differ from those of all hosts.

        Raises:
            ValueError: one of them is not for a host; the message is one line for people.
        """
        for name in limits:
            if not name.startswith("host_"):
                raise ValueError(f"throttle {name} is one of all sites together; a site has host_{name}")
        self._host_limits[host] = dict(limits)
        for kind in ThrottleKind:
            self._place(kind, host)

    def forget_host(self, host: str) -> None:
        """Forget what was stated of a host."""
        self._host_limits.pop(host, None)
        for kind in ThrottleKind:
            self._place(kind, host)

    def adopt(self, key: str, kind: ThrottleKind, host: str) -> None:
        """Count one that is under way and submitted already, even beyond a limit.

        Raises:
            ValueError: there is one of that name already.
        """
        self._started[key] = self._entry(key, kind, host)
        self._count(kind, host, 1)
        self._place(kind, host)

    def want(self, key: str, kind: ThrottleKind, host: str) -> None:
        """Let one wait, who is called ``key``; :meth:`start` tells when he may start.

        Raises:
            ValueError: there is one of that name already.
        """
        self._waiting[key] = self._entry(key, kind, host)
        self._lines[kind].hosts.setdefault(host, OrderedDict())[key] = None
        self._place(kind, host)

    def start(self) -> list[str]:
        """Return who starts now, in order; they are counted from now on."""
        return [key for kind in ThrottleKind for key in self._start(kind)]

    def _start(self, kind: ThrottleKind) -> Iterator[str]:
        line = self._lines[kind]
        while line.eligible and self._has_room(kind, ""):
            host, _ = line.eligible.popitem(last=False)
            key, _ = line.hosts[host].popitem(last=False)
            self._started[key] = self._waiting.pop(key)
            self._submitting.add(key)
            self._count(kind, host, 1)
            self._count(kind, host, 1, "_submit")
            self._place(kind, host)
            yield key

    def submitted(self, key: str) -> None:
        """The call that submits has returned; the task goes on. Nothing happens if that was told before."""
        if key in self._submitting:
            self._submitting.remove(key)
            entry = self._started[key]
            self._count(entry.kind, entry.host, -1, "_submit")
            self._place(entry.kind, entry.host)

    def ended(self, key: str) -> None:
        """One has ended, whether he was submitted or not, or does not want to start any more."""
        self.submitted(key)
        entry = self._started.pop(key, None)
        if entry is not None:
            self._count(entry.kind, entry.host, -1)
        else:
            entry = self._waiting.pop(key, None)
            if entry is None:
                return
            del self._lines[entry.kind].hosts[entry.host][key]
        self._place(entry.kind, entry.host)

    def waiting(self, kind: ThrottleKind, host: str | None = None) -> list[str]:
        """Return who waits, at one host or at all; at each host in the order in which they came."""
        hosts = self._lines[kind].hosts
        return [key for name, keys in hosts.items() if host in (None, name) for key in keys]

    def why(self, key: str) -> str | None:
        """Return in one line for people why one waits; None if he does not, or starts at once."""
        entry = self._waiting.get(key)
        if entry is None:
            return None
        for name, host in self._throttles(entry.kind, entry.host):
            limit = self._limit(name, host)
            if limit is not None and self._counts[name, host] >= limit:
                at = f" at {host}" if host else ""
                return f"throttle {name} {limit}: {self._counts[name, host]} under way{at}"
        return None

    def uses(self, host: str = "") -> dict[str, tuple[int, Limit]]:
        """Return how many are counted and the limit, by name of the throttle: of a host, "" of all together.

        Throttles that are off and count nothing are left out.
        """
        names = (name for name in DEFAULTS if name.startswith("host_") == bool(host))
        found = {name: (self._counts[name, host], self._limit(name, host)) for name in names}
        return {name: use for name, use in found.items() if use != (0, None)}

    def check(self) -> None:
        """Assert that the counts are those of who is under way, that no throttle is exceeded by a start."""
        counts: Counter[tuple[str, str]] = Counter()
        for key, entry in self._started.items():
            for name, host in self._throttles(entry.kind, entry.host):
                counts[name, host] += not name.endswith("_submit") or key in self._submitting
        assert +counts == +self._counts
        assert self._submitting <= self._started.keys()
        for kind, line in self._lines.items():
            assert all(line.hosts.values()), "a host is kept for which nobody waits"
            assert set(line.eligible) == {host for host in line.hosts if self._has_room(kind, host)}

    def _entry(self, key: str, kind: ThrottleKind, host: str) -> _Entry:
        if key in self._waiting or key in self._started:
            raise ValueError(f"{key} waits or is under way already")
        if not host:
            raise ValueError(f"{key} has no host")
        return _Entry(kind, host)

    def _throttles(self, kind: ThrottleKind, host: str) -> Iterator[tuple[str, str]]:
        for submit in ("", "_submit"):
            yield f"{kind}{submit}", ""
            yield f"host_{kind}{submit}", host

    def _limit(self, name: str, host: str) -> Limit:
        return self._host_limits.get(host, self._limits).get(name, self._limits[name])

    def _has_room(self, kind: ThrottleKind, host: str) -> bool:
        """Return whether the throttles of a host have room, "" for those of all together."""
        prefix = "host_" if host else ""
        for name in (f"{prefix}{kind}", f"{prefix}{kind}_submit"):
            limit = self._limit(name, host)
            if limit is not None and self._counts[name, host] >= limit:
                return False
        return True

    def _count(self, kind: ThrottleKind, host: str, change: int, submit: str = "") -> None:
        for name, where in ((f"{kind}{submit}", ""), (f"host_{kind}{submit}", host)):
            self._counts[name, where] += change
            if not self._counts[name, where]:
                del self._counts[name, where]

    def _place(self, kind: ThrottleKind, host: str) -> None:
        """See whether a host has a turn, after who waits for it or is counted there has changed."""
        line = self._lines[kind]
        if not line.hosts.get(host):
            line.hosts.pop(host, None)
            line.eligible.pop(host, None)
        elif self._has_room(kind, host):
            line.eligible.setdefault(host)
        else:
            line.eligible.pop(host, None)
