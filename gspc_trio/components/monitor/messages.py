"""Messages of monitoring: what RIFs tell of hosts, and what clients ask (ASP-3, getHWInfo and others)."""

from __future__ import annotations

from msgspec import Struct, field

from gspc_trio.components.monitor.locality import DataRead
from gspc_trio.core.ids import Count, Seconds
from gspc_trio.core.messages import Done, Question


class NoMetrics(LookupError):
    """There is no such host, or nothing is known of it yet; the message is one line for people."""


class StartMonitoring(Struct, frozen=True):
    """RTS to RIF: read the metrics of your host, and tell them by frames.

    Attributes:
        probe: look at your processes, too, and measure how fast the host is.
    """

    probe: bool = False


class Echo(Question[Done], frozen=True):
    """RIF to RTS: answer, so that I know how long a round trip takes."""


class Disk(Struct, frozen=True):
    """A disk of a host, as its kernel names it."""

    name: str
    size_bytes: Count


class HostHardware(Struct, frozen=True):
    """What a host has. What its kernel does not tell is None, or there is none of it in the list.

    Attributes:
        cpus: numbers of the CPUs (hardware threads) that the RIF may use.
        cores: how many cores its RIF offers of these by default.
        sockets: number of sockets.
        numa_nodes: number of NUMA nodes.
        memory_bytes: memory that the RIF may use.
        processor: model of the processor.
        disks: its disks.
        gpus: numbers of its GPUs.
        features: flags of its processor.
    """

    cpus: tuple[Count, ...]
    cores: Count
    sockets: Count
    numa_nodes: Count | None = None
    memory_bytes: Count | None = None
    processor: str | None = None
    disks: tuple[Disk, ...] = ()
    gpus: tuple[Count, ...] = ()
    features: tuple[str, ...] = ()


class NodeFrame(Struct, frozen=True):
    """Metrics of a host in one frame. A metric that the host does not tell is absent.

    Attributes:
        begin_s: when the frame began, in seconds since 1970.
        covered_s: so many seconds of it were measured.
        counts: name -> how much it was in this time; such amounts can be added.
        levels: name -> mean over this time.
    """

    begin_s: Count
    covered_s: Seconds
    counts: dict[str, Count] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)

    def per_s(self, name: str) -> float | None:
        """Return how much of something there was in a second, None if the host does not tell."""
        count = self.counts.get(name)
        return None if count is None or not self.covered_s else count / self.covered_s

    @property
    def busy_cores(self) -> float | None:
        """How many cores were at work, as a mean; None if the host does not tell."""
        busy = [self.counts[name] for name in BUSY if name in self.counts]
        return sum(busy) / 1000 / self.covered_s if busy and self.covered_s else None


BUSY = ("cpu_user_ms", "cpu_system_ms", "cpu_interrupts_ms")
"""Counts that together are the time at work of all cores."""


class MonitorTold(Struct, frozen=True):
    """RIF to RTS: what it has measured.

    Attributes:
        hardware: of its host; None: as it said before.
        nodes: frames of its host that are over.
        reads: from where its tasks took data, in frames that are over.
    """

    hardware: HostHardware | None = None
    nodes: tuple[NodeFrame, ...] = ()
    reads: tuple[DataRead, ...] = ()


class HardwareReport(Struct, frozen=True):
    """host -> what it has."""

    hosts: dict[str, HostHardware]


class GetHardware(Question[HardwareReport], frozen=True):
    """Ask the RTS what hosts have; without ``host`` all of them."""

    host: str = ""


class SystemStats(Struct, frozen=True):
    """How hosts are: the last frame of each, which is at most some seconds old.

    Attributes:
        store: file that keeps the metrics, on the host of the RTS; "": they are not kept any more.
        hosts: host -> its last frame; a host that has told none yet is absent.
        cores, busy_cores: of all these hosts.
        memory_bytes, memory_available_bytes: of those that tell it, None if none does.
    """

    store: str
    hosts: dict[str, NodeFrame]
    cores: Count
    busy_cores: float | None
    memory_bytes: float | None
    memory_available_bytes: float | None


class GetNodeStats(Question[NodeFrame], frozen=True):
    """Ask the RTS how a host is."""

    host: str


class GetSystemStats(Question[SystemStats], frozen=True):
    """Ask the RTS how all hosts are."""
