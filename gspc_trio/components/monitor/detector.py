"""Anomalies of hosts: which there are, found in their frames; pure (ASP-9).

What runs below a RIF explains a part of what its host shows; rules look at the rest, and at a probe. Measures
of a probe are compared with their median in clean frames in which the host was about as busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct

from gspc_trio.components.monitor.frames import FRAME_S
from gspc_trio.components.monitor.messages import NodeFrame

KINDS = ("leak", "memeater", "dial", "ddot", "cpufreq", "pagefail", "ioerr", "copy", "linklog")
"""All classes, as ASPIDE names them."""

ALIASES = {"linkclog": "linklog"}
"""Other names of classes."""

SURE = ("pagefail", "ioerr")
"""Classes that nothing but a fault shows: fewer frames are enough. Not every access of a bad device fails."""

SEVERAL = ("memeater", "copy")
"""Classes of which a frame shows several things together, or a series of frames: fewer are enough, too."""

FREQUENCY = "busy_frequency_mhz"
"""What the frequency under load is called in a frame; without work it is low."""

HOST, TASKS = "host", "tasks"
"""Who is the cause: something else on the host, or what runs below the RIF."""


class DetectorLimits(Struct, frozen=True):
    """Thresholds. Frames are of 5 s; ratios are of speed or of time to the base.

    Attributes:
        base_frames: clean frames of which the base is the median; ``base_frames_min``: with fewer of them
            there is none yet.
        on_of, on_frames: an anomaly is on when so many of the last so many frames show it; ``sure_frames``:
            one of :data:`SURE` or :data:`SEVERAL`.
        off_frames: it is off after so many frames that do not show it.
        covered_s: a frame of which less was measured is left out.
        busy_share: a host at work with more of its CPUs is compared with frames in which it was so, too.
        cores: unexplained ones that are an anomaly.
        leak_rises, leak_frames: unexplained memory rises in so many of so many frames.
        leak_share_per_min: share of the memory by which it rises at least in a minute.
        leak_return_share: it has not fallen by more than this share of the memory in any frame.
        jump_share, jump_frames: it rises by this share of the memory within so many frames, ``rest_share``:
            and then by less than this in a frame. ``fast_share``: it rises by so much in two frames, as no
            slow leak does.
        load_bytes: unexplained memory that came with the unexplained cores from which on they move memory.
        slow: speed of the cache or memory probe below which it is slow.
        faults: page faults over their base, with a slow memory probe.
        arithmetic: speed of the probe, or frequency, below which the processor is slow. ``stolen_share``: a
            hypervisor takes so much that the probe says nothing.
        write: time to write over its base.
        disk_share: part of what the device moves that is unexplained; ``disk_bytes_per_s``: at least so much.
        copy_bytes_per_s: so much of it is an anomaly however fast a write is.
        round_trip, round_trip_us: time over its base, and how much more it must be.
        urgent_share: a leak is urgent when less than this share of the memory is available.
        again_share, segments: part of TCP segments that are sent again, of at least so many.
    """

    base_frames: int = 120
    base_frames_min: int = 6
    on_of: int = 4
    on_frames: int = 3
    sure_frames: int = 2
    off_frames: int = 6
    covered_s: float = 3.0
    busy_share: float = 0.5
    cores: float = 0.5
    leak_rises: int = 10
    leak_frames: int = 12
    leak_share_per_min: float = 0.01
    leak_return_share: float = 0.002
    jump_share: float = 0.05
    jump_frames: int = 6
    rest_share: float = 0.002
    fast_share: float = 0.038
    load_bytes: float = 24.0 * (1 << 20)
    slow: float = 0.7
    faults: float = 5.0
    arithmetic: float = 0.85
    stolen_share: float = 0.05
    write: float = 5.0
    disk_share: float = 0.5
    disk_bytes_per_s: float = 1e6
    copy_bytes_per_s: float = 50e6
    round_trip: float = 5.0
    round_trip_us: float = 5000.0
    urgent_share: float = 0.1
    again_share: float = 0.01
    segments: int = 100


class Finding(Struct, frozen=True):
    """An anomaly of a host begins or ends.

    Attributes:
        at_s: end of the frame in which that was seen, in seconds since 1970.
        host: which one.
        kind: one of :data:`KINDS`, or what a plug-in says.
        is_on: it begins; else it ends.
        subject: ``host``, or ``tasks`` if what runs below the RIF is the cause.
        evidence: one line for people.
        is_urgent: the host may fail by it soon.
    """

    at_s: float
    host: str
    kind: str
    is_on: bool
    subject: str = HOST
    evidence: str = ""
    is_urgent: bool = False


class Switch:
    """Is on when enough of the last frames show something, off after enough that do not.

    Args:
        limits: how many these are.
        kind: of what.
    """

    def __init__(self, limits: DetectorLimits, kind: str = "") -> None:
        self._limits = limits
        self._on_frames = limits.sure_frames if kind in SURE + SEVERAL else limits.on_frames
        self._last: deque[bool] = deque(maxlen=limits.on_of)
        self._clean = 0
        self.is_on: bool = False

    def take(self, is_shown: bool) -> bool:
        """Take in a frame; return whether it is on or off now, and was not before."""
        self._last.append(is_shown)
        self._clean = 0 if is_shown else self._clean + 1
        before = self.is_on
        if self.is_on:
            self.is_on = self._clean < self._limits.off_frames
        else:
            self.is_on = sum(self._last) >= self._on_frames
        return self.is_on != before


class Figures(Struct, frozen=True):
    """What rules ask of a frame; what its host does not tell is None.

    Attributes:
        frame: the frame.
        working: so many CPUs were at work.
        is_busy: that is more than half of them.
        cores: unexplained ones at work.
        memory: unexplained bytes in use, without shared memory; ``own_memory``: those below the RIF.
        disk_per_s: bytes a second that disks have moved; ``own_disk_per_s``: those for what is below the RIF.
    """

    frame: NodeFrame
    working: float
    is_busy: bool
    cores: float | None
    memory: float | None
    own_memory: float | None
    disk_per_s: float | None
    own_disk_per_s: float

    def load(self, name: str) -> int:
        """Return in which class of load a measure has been taken."""
        if name == FREQUENCY:
            return min(LOADS_MAX - 1, round(self.working).bit_length())
        return int(self.is_busy)

    def measure(self, name: str) -> float | None:
        """Return a level, or a count by second."""
        level = self.frame.levels.get(name)
        return self.frame.per_s(name) if level is None else level


def figures_of(frame: NodeFrame, cpus: int, limits: DetectorLimits, waiting_bytes: float = 0.0) -> Figures:
    """Return what rules ask of a frame.

    Args:
        frame: of a host.
        cpus: number of CPUs that its RIF may use.
        limits: the thresholds.
        waiting_bytes: what is below the RIF has written so much that was in memory alone when it began.
    """
    busy_ms, own_ms = frame.counts.get("usable_busy_ms"), frame.counts.get("own_cpu_ms")
    cores = None
    if busy_ms is not None and own_ms is not None:
        cores = max(0.0, busy_ms - own_ms) / 1000 / frame.covered_s
    levels = frame.levels
    own, memory = levels.get("own_memory_bytes"), levels.get("unexplained_memory_bytes")
    moved = [frame.per_s(name) for name in ("disk_read_bytes", "disk_written_bytes")]
    read, written = (frame.per_s(name) or 0.0 for name in ("own_read_bytes", "own_written_bytes"))
    disk = None if None in moved else sum(one for one in moved if one is not None)
    ours = read + max(written, min(moved[1] or 0.0, written + waiting_bytes / frame.covered_s))
    working = (busy_ms or 0) / 1000 / frame.covered_s
    is_busy = working > limits.busy_share * max(1, cpus)
    return Figures(frame, working, is_busy, cores, memory, own, disk, ours)


def waiting_bytes(frame: NodeFrame, before: float) -> float:
    """Return how much of what is below the RIF has written is in memory alone at the end of a frame.

    The kernel writes it to the disks up to half a minute later, when the program may have ended.

    Args:
        frame: of a host.
        before: the same at its begin.
    """
    written, stored = (frame.counts.get(name, 0) for name in ("own_written_bytes", "disk_written_bytes"))
    limit = frame.levels.get("memory_dirty_bytes", 0.0) + written  # files that were removed are never stored
    return max(0.0, min(limit, before + written - stored))


BASED = (
    *("probe_arithmetic_us", "probe_cache_us", "probe_memory_us", "probe_write_us", "probe_round_trip_us"),
    *(FREQUENCY, "page_faults"),
)
"""Measures that have a base."""


BY_LOAD = ("probe_arithmetic_us", FREQUENCY, "probe_round_trip_us")
"""Those that work of tasks alone changes: they are compared with frames in which the host was as busy."""

LOADS_MAX = 16
"""There are no more classes of load: the last one begins at 32,768 CPUs."""


class Bases:
    """Medians of measures in clean frames, apart for frames in which the host was busy and was not.

    The frequency of CPUs that work falls when more of them do. So it is apart for 0, 1, 2, 4, 8 ... of them.

    Args:
        limits: of how many frames.
    """

    def __init__(self, limits: DetectorLimits) -> None:
        self._limits = limits
        self._values: dict[tuple[str, int], deque[float]] = {}

    def learn(self, figures: Figures) -> None:
        """Take in a clean frame."""
        for name in BASED:
            value = figures.measure(name)
            if value is not None:
                key = name, figures.load(name)
                self._values.setdefault(key, deque(maxlen=self._limits.base_frames)).append(value)

    def ratio(self, figures: Figures, name: str) -> float | None:
        """Return a measure over its base, None if one of them is not known."""
        value, known = figures.measure(name), self._known(name, figures.load(name))
        if value is None or len(known) < self._limits.base_frames_min:
            return None
        return value / max(median(known), 1e-9)

    def _known(self, name: str, load: int) -> Sequence[float]:
        loads = [load]
        if name == FREQUENCY:  # more CPUs that work are no faster
            loads += range(load + 1, LOADS_MAX)
        elif name not in BY_LOAD:
            loads.append(1 - load)
        for one in loads:
            known = self._values.get((name, one), ())
            if len(known) >= self._limits.base_frames_min:
                return known
        return ()

    def speed(self, figures: Figures, name: str) -> float | None:
        """Return the base over a time: below 1 if it took longer than usual."""
        ratio = self.ratio(figures, name)
        return None if ratio is None else 1 / max(ratio, 1e-9)


class Symptom(Struct, frozen=True):
    """What a frame shows: a class, who is the cause, and why."""

    kind: str
    evidence: str
    subject: str = HOST


class _View(Struct, frozen=True):
    """What rules see: the last frames, the newest at the end, and the bases.

    Attributes:
        quiet_memory: unexplained, in the last frame but one without unexplained cores; None: not known.
    """

    last: Sequence[Figures]
    bases: Bases
    limits: DetectorLimits
    quiet_memory: float | None = None

    @property
    def now(self) -> Figures:
        """The newest frame."""
        return self.last[-1]

    def count(self, name: str) -> int:
        """Return a count of the newest frame, 0 if it is not told."""
        return self.now.frame.counts.get(name, 0)

    def is_below(self, ratio: float | None, limit: float) -> bool:
        """Whether something is known, and below a limit."""
        return ratio is not None and ratio < limit

    @property
    def has_other_load(self) -> bool:
        """Whether something else than tasks uses CPUs."""
        return self.now.cores is not None and self.now.cores >= self.limits.cores


def _series(view: _View, own: bool, frames: int) -> list[float]:
    """Return memory in the last frames, [] if there are not so many that tell it."""
    told = [one.own_memory if own else one.memory for one in view.last][-frames:]
    known = [value for value in told if value is not None]
    return known if len(known) == frames else []


def _rises(series: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(series)]


def _leak(view: _View) -> Iterator[Symptom]:
    limits, total = view.limits, view.now.frame.levels.get("memory_bytes", 0.0)
    for own, subject in ((False, HOST), (True, TASKS)):
        rises = _rises(_series(view, own, limits.leak_frames + 1))
        if not rises or not total:
            continue
        minutes = len(rises) * FRAME_S / 60
        is_steady = sum(rise > 0 for rise in rises) >= limits.leak_rises
        is_enough = sum(rises) >= limits.leak_share_per_min * total * minutes
        if is_steady and is_enough and min(rises) > -limits.leak_return_share * total:
            whose = "of tasks" if own else "that no task uses"
            yield Symptom("leak", f"memory {whose} rises by {sum(rises) / total / minutes:.1%}/min", subject)


def _memeater(view: _View) -> Iterator[Symptom]:
    limits, total = view.limits, view.now.frame.levels.get("memory_bytes", 0.0)
    fast = sum(_rises(_series(view, False, 3)))
    if total and fast >= limits.fast_share * total:  # it has eaten before it rests
        yield Symptom("memeater", f"memory that no task uses rises by {fast / total:.1%} in 10 s")
        return
    series = _series(view, False, limits.jump_frames + 1)
    if series and total:
        jump = max(series) - series[0]
        rests = series[-1] - series[-2] < limits.rest_share * total
        if jump >= limits.jump_share * total and rests:
            yield Symptom("memeater", f"memory that no task uses rose by {jump / total:.1%} within 30 s")
            return
    speed = view.bases.speed(view.now, "probe_memory_us")
    faults = view.bases.ratio(view.now, "page_faults")
    if view.has_other_load and view.is_below(speed, limits.slow) and faults and faults >= limits.faults:
        yield Symptom(
            "memeater", f"memory is at {speed:.2f} of its speed, with {faults:.0f} times the faults"
        )


def _load(view: _View) -> Iterator[Symptom]:
    if not view.has_other_load:
        return
    speed = view.bases.speed(view.now, "probe_cache_us")
    told = f"{view.now.cores:.1f} cores work for others"
    memory, before = view.now.memory, view.quiet_memory
    came = 0.0 if memory is None or before is None else memory - before
    if view.is_below(speed, view.limits.slow):
        yield Symptom("ddot", f"{told}, and the cache is at {speed:.2f} of its speed")
    elif came >= view.limits.load_bytes:
        # A cache of each core is as fast as ever beside programs that move memory.
        yield Symptom("ddot", f"{told}, with {came / (1 << 20):.0f} MiB")
    else:
        yield Symptom("dial", told)


def _cpufreq(view: _View) -> Iterator[Symptom]:
    if view.has_other_load:
        return
    limits = view.limits
    if throttles := view.count("throttles"):
        yield Symptom("cpufreq", f"processors were throttled {throttles} times")
        return
    if "frequency_mhz" in view.now.frame.levels:  # it is low without work, and what else is slow is no matter
        ratio = view.bases.ratio(view.now, FREQUENCY)
    else:
        stolen_s = (view.now.frame.per_s("cpu_stolen_ms") or 0.0) / 1000
        is_known = stolen_s < limits.stolen_share
        ratio = view.bases.speed(view.now, "probe_arithmetic_us") if is_known else None
    if ratio is not None and ratio < limits.arithmetic:
        yield Symptom("cpufreq", f"the processor is at {ratio:.2f} of its speed")


def _pagefail(view: _View) -> Iterator[Symptom]:
    if failed := view.count("allocation_failures"):
        yield Symptom("pagefail", f"{failed} allocations of memory have failed")


def _ioerr(view: _View) -> Iterator[Symptom]:
    names = ("probe_io_errors", "task_io_errors", "device_errors", "disk_errors")
    errors = {name: view.count(name) for name in names}
    if any(errors.values()):
        told = ", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in errors.items() if number)
        yield Symptom("ioerr", told)
    elif view.now.frame.levels.get("disk_read_only", 0.0) > 0:
        yield Symptom("ioerr", "the disk for temporary files can only be read")


def _copy(view: _View) -> Iterator[Symptom]:
    now, limits = view.now, view.limits
    if now.disk_per_s is None or now.disk_per_s < limits.disk_bytes_per_s:
        return
    others_per_s = max(0.0, now.disk_per_s - now.own_disk_per_s)
    others = others_per_s / now.disk_per_s
    if others >= limits.disk_share and others_per_s >= limits.copy_bytes_per_s:
        # A fast disk takes a small write in between as fast as ever.
        yield Symptom("copy", f"others move {others_per_s / 1e6:.0f} MB/s on the disks")
        return
    ratio = view.bases.ratio(now, "probe_write_us")
    if ratio is None or ratio < limits.write:
        return
    told = f"a write takes {ratio:.0f} times as long, {others:.0%} of what the disks move is of others"
    yield Symptom("copy", told, HOST if others >= limits.disk_share else TASKS)


def _linklog(view: _View) -> Iterator[Symptom]:
    limits, now = view.limits, view.now
    ratio, took_us = view.bases.ratio(now, "probe_round_trip_us"), now.measure("probe_round_trip_us")
    if (
        ratio is not None
        and took_us is not None
        and ratio >= limits.round_trip
        and took_us * (1 - 1 / ratio) >= limits.round_trip_us
    ):
        yield Symptom("linklog", f"a round trip takes {took_us / 1000:.1f} ms, {ratio:.0f} times as long")
        return
    sent, again = view.count("tcp_segments_sent"), view.count("tcp_segments_sent_again")
    if sent >= limits.segments and again >= limits.again_share * sent:
        yield Symptom("linklog", f"{again / sent:.1%} of TCP segments are sent again")


RULES: tuple[Callable[[_View], Iterator[Symptom]], ...] = (
    *(_leak, _memeater, _load, _cpufreq, _pagefail, _ioerr, _copy, _linklog),
)
"""The rules, by class."""


class HostDetector:
    """Finds anomalies of one host.

    Args:
        host: its name.
        cpus: number of CPUs that its RIF may use.
        limits: the thresholds.
    """

    def __init__(self, host: str, cpus: int, limits: DetectorLimits) -> None:
        self._host = host
        self._cpus = cpus
        self._limits = limits
        self._bases = Bases(limits)
        self._last: deque[Figures] = deque(maxlen=limits.leak_frames + 1)
        self._switches: dict[tuple[str, str], Switch] = {}
        self._evidence: dict[tuple[str, str], str] = {}
        self._is_urgent = False
        self._waiting_bytes = 0.0
        self._quiet_memory: float | None = None
        self._last_quiet_memory: float | None = None

    @property
    def on(self) -> list[tuple[str, str]]:
        """Classes that are on, each with its cause."""
        return [key for key, switch in self._switches.items() if switch.is_on]

    def take(self, frame: NodeFrame) -> list[Finding]:
        """Take in a frame; return what begins or ends with it."""
        if frame.covered_s < self._limits.covered_s:
            return []
        if self._last and frame.begin_s > self._last[-1].frame.begin_s + 2 * FRAME_S:
            self._last.clear()  # what lies between is not known
            self._waiting_bytes = 0.0
        figures = figures_of(frame, self._cpus, self._limits, self._waiting_bytes)
        self._waiting_bytes = waiting_bytes(frame, self._waiting_bytes)
        self._last.append(figures)
        view = _View(self._last, self._bases, self._limits, self._quiet_memory)
        if not view.has_other_load:  # of the frame before it: a load may have begun at the end of this one
            self._quiet_memory, self._last_quiet_memory = self._last_quiet_memory, figures.memory
        shown = {(one.kind, one.subject): one.evidence for rule in RULES for one in rule(view)}
        if ("leak", HOST) in self.on:
            shown.pop(("memeater", HOST), None)  # it rests, for it has ended
        found = []
        for key in dict.fromkeys((*self._switches, *shown)):
            switch = self._switches.setdefault(key, Switch(self._limits, key[0]))
            self._evidence[key] = shown.get(key, self._evidence.get(key, ""))
            if switch.take(key in shown):
                at_s = float(frame.begin_s + FRAME_S)
                found.append(Finding(at_s, self._host, key[0], switch.is_on, key[1], self._evidence[key]))
        found += self._urgent(figures)
        if not shown and not self.on:
            self._bases.learn(figures)
        return found

    def _urgent(self, figures: Figures) -> list[Finding]:
        """Return that little memory is left, once for each leak."""
        levels, switch = figures.frame.levels, self._switches.get(("leak", HOST))
        total, left = levels.get("memory_bytes"), levels.get("memory_available_bytes")
        is_on = switch is not None and switch.is_on
        before = self._is_urgent and is_on
        self._is_urgent = before
        if before or not is_on or not total or left is None or left >= self._limits.urgent_share * total:
            return []
        self._is_urgent = True
        at_s = float(figures.frame.begin_s + FRAME_S)
        evidence = f"{left / total:.0%} of the memory is left"
        return [Finding(at_s, self._host, "leak", True, HOST, evidence, is_urgent=True)]


class Detector:
    """Finds anomalies of hosts.

    Args:
        limits: the thresholds.
    """

    def __init__(self, limits: DetectorLimits | None = None) -> None:
        self._limits = limits or DetectorLimits()
        self._hosts: dict[str, HostDetector] = {}

    def joined(self, host: str, cpus: int) -> None:
        """A host is measured from now on.

        Args:
            host: its name.
            cpus: number of CPUs that its RIF may use.
        """
        self._hosts[host] = HostDetector(host, cpus, self._limits)

    def take(self, host: str, frame: NodeFrame) -> list[Finding]:
        """Take in a frame of a host; return what begins or ends with it."""
        return self._hosts[host].take(frame) if host in self._hosts else []

    def gone(self, host: str) -> None:
        """A host is not there any more."""
        self._hosts.pop(host, None)
