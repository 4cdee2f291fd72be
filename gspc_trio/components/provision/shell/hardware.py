"""Hardware discovery: the node, sockets, cores, GPUs and memory that this process may use (ASP-3).

Read from ``/sys``, ``/proc`` and ``/dev`` below a root that tests replace; the CPU affinity of the process
and the limits of its control groups are respected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from gspc_trio.core.ids import RifId
from gspc_trio.core.resources import Resource, is_feature


class NumaNode(Struct, frozen=True):
    """Memory and the CPUs that are near it."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int


class HostFacts(Struct, frozen=True):
    """What was found on a host.

    Attributes:
        cpus: numbers of the CPUs (hardware threads) that this process may use.
        socket_of: CPU -> number of its socket.
        cpu_quota: CPU seconds per second that its control groups allow, or None.
        memory_bytes: memory that it may use, 0 if unknown.
        numa: its NUMA nodes.
        gpus: GPU -> number of the NUMA node it is near to, or -1.
        processor: model of the processor, "" if unknown.
        features: flags of its processor.
    """

    cpus: tuple[int, ...]
    socket_of: dict[int, int]
    cpu_quota: float | None
    memory_bytes: int
    numa: tuple[NumaNode, ...]
    gpus: dict[int, int]
    processor: str = ""
    features: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        """How many cores to offer: the CPUs, or fewer where control groups allow less."""
        if self.cpu_quota is None:
            return len(self.cpus)
        return max(1, min(len(self.cpus), int(self.cpu_quota)))


def discover_hardware(
    rif_id: RifId, cores: int = 0, *, root: Path = Path("/"), affinity: Iterable[int] | None = None
) -> tuple[Resource, ...]:
    """Return the resources of this host: node, below it sockets, below them cores and GPUs.

    Workers are pinned to the CPUs that their resource stands for, unless more or fewer cores are offered than
    there are CPUs: two small RIFs on one host must not meet on the same CPU.

    Args:
        rif_id: begins the names.
        cores: how many cores to offer, 0 for what there is.
        root: of the file system.
        affinity: CPUs that may be used; None asks the kernel.

    Raises:
        ValueError: a negative number of cores.
    """
    if cores < 0:
        raise ValueError(f"{cores} cores cannot be offered; 0 means what there is")
    return resources_of(rif_id, read_facts(root, affinity), cores)


def resources_of(rif_id: RifId, facts: HostFacts, cores: int = 0) -> tuple[Resource, ...]:
    """Return the resources of a host with these facts; see :func:`discover_hardware`."""
    wanted = cores or facts.cores
    numbers = sorted({facts.socket_of[cpu] for cpu in facts.cpus})
    pinned = wanted == len(facts.cpus)
    if pinned:
        core_names = {number: [c for c in facts.cpus if facts.socket_of[c] == number] for number in numbers}
    else:
        numbers = numbers[:wanted]
        share = [wanted * place // len(numbers) for place in range(len(numbers) + 1)]
        core_names = {
            number: list(range(share[place], share[place + 1])) for place, number in enumerate(numbers)
        }
    gpu_parents = {gpu: _socket_near(facts, near, numbers) for gpu, near in facts.gpus.items()}
    node = Resource(
        f"{rif_id}.node",
        "node",
        (),
        facts.cpus if pinned else (),
        facts.memory_bytes,
        tuple(sorted(facts.gpus)),
        facts.processor,
        facts.features,
    )
    sockets = [
        Resource(
            f"{rif_id}.socket{number}",
            "socket",
            (node.resource_id,),
            tuple(core_names[number]) if pinned else (),
            _socket_memory(facts, number, len(numbers)),
            tuple(sorted(gpu for gpu, socket in gpu_parents.items() if socket == number)),
        )
        for number in numbers
    ]
    below = [
        Resource(f"{rif_id}.core{name}", "core", (socket.resource_id,), (name,) if pinned else ())
        for number, socket in zip(numbers, sockets, strict=True)
        for name in core_names[number]
    ]
    for gpu, near in sorted(gpu_parents.items()):
        parent = node.resource_id if near is None else f"{rif_id}.socket{near}"
        below.append(Resource(f"{rif_id}.gpu{gpu}", "gpu", (parent,), gpus=(gpu,)))
    return (node, *sockets, *below)


def _socket_near(facts: HostFacts, numa_number: int, numbers: list[int]) -> int | None:
    """Return the socket whose CPUs are near this NUMA node; None if unknown or not offered."""
    for numa in facts.numa:
        if numa.number == numa_number:
            near = {facts.socket_of[cpu] for cpu in numa.cpus if cpu in facts.socket_of}
            return near.pop() if len(near) == 1 and near <= set(numbers) else None
    return None


def _socket_memory(facts: HostFacts, number: int, sockets: int) -> int:
    """Return the memory of the socket's NUMA nodes, or an equal share; never more than the host may use."""
    if sockets == 1:
        return facts.memory_bytes
    near = [
        numa.memory_bytes
        for numa in facts.numa
        if {facts.socket_of.get(cpu) for cpu in numa.cpus} - {None} == {number}
    ]
    return min(sum(near), facts.memory_bytes) if near else facts.memory_bytes // sockets


def read_facts(root: Path = Path("/"), affinity: Iterable[int] | None = None) -> HostFacts:
    """Return what the host has and this process may use.

    Args:
        root: of the file system.
        affinity: CPUs that may be used; None asks the kernel.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0) if affinity is None else affinity))
    numa = _read_numa(root)
    total_bytes = _read_kib(root / "proc/meminfo", "MemTotal:")
    limits = [total_bytes, *_control_group_memory(root)]
    known = [limit for limit in limits if limit]
    return HostFacts(
        cpus,
        {cpu: _socket_of(root, cpu) for cpu in cpus},
        min(_control_group_quotas(root), default=None),
        min(known, default=0),
        numa,
        _read_gpus(root),
        _read_processor(root),
        _read_flags(root),
    )


def hw_info(root: Path = Path("/")) -> dict[str, Any]:
    """Return the hardware of this host for people (ASP-3).

    The description of the CPU takes about a second: never ask before the first task has run.
    """
    import cpuinfo
    import psutil

    facts = read_facts(root)
    cpu = cpuinfo.get_cpu_info()
    return {
        "cpu": cpu.get("brand_raw", ""),
        "architecture": cpu.get("arch", ""),
        "features": sorted(cpu.get("flags", ())),
        "frequency_hz": (cpu.get("hz_advertised") or (0, 0))[0],
        "sockets": len(set(facts.socket_of.values())),
        "physical_cores": psutil.cpu_count(logical=False) or len(facts.cpus),
        "cpus": list(facts.cpus),
        "cpu_quota": facts.cpu_quota,
        "memory_bytes": facts.memory_bytes,
        "numa": [
            {"number": node.number, "cpus": list(node.cpus), "memory_bytes": node.memory_bytes}
            for node in facts.numa
        ],
        "gpus": sorted(facts.gpus),
        "disks": _disks(),
    }


def _disks() -> list[dict[str, Any]]:
    import psutil

    disks = []
    for part in psutil.disk_partitions():
        with suppress(OSError):  # one that this user may not see
            size_bytes = psutil.disk_usage(part.mountpoint).total
            disks.append({"device": part.device, "path": part.mountpoint, "size_bytes": size_bytes})
    return disks


# Files ------------------------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    """Return the text of a small file, "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _read_processor(root: Path) -> str:
    """Return the model of the first processor, "" where the kernel names none."""
    found = re.search(
        r"^(?:model name|Processor|cpu)\s*:\s*(\S.*)$", _read(root / "proc/cpuinfo"), re.MULTILINE
    )
    return " ".join(found[1].split()) if found else ""


def _read_int(path: Path) -> int | None:
    text = _read(path)
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _read_kib(path: Path, label: str) -> int:
    """Return bytes from a line like ``MemTotal:  1234 kB``, 0 if there is none."""
    found = re.search(rf"{re.escape(label)}\s+(\d+) kB", _read(path))
    return int(found[1]) * 1024 if found else 0


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a kernel list.

    >>> parse_cpu_list("0-2,5")
    (0, 1, 2, 5)
    """
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def _socket_of(root: Path, cpu: int) -> int:
    number = _read_int(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
    return max(number or 0, 0)  # some machines say -1


def _read_flags(root: Path) -> tuple[str, ...]:
    """Return the flags of the first processor, which is told of each: ``avx512f`` and others, in an order."""
    try:
        with open(root / "proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, flags = line.partition(":")
                if name.strip() in ("flags", "Features"):  # x86, ARM
                    return tuple(sorted(flag for flag in set(flags.split()) if is_feature(flag)))
    except OSError:
        pass
    return ()


def _read_numa(root: Path) -> tuple[NumaNode, ...]:
    found = []
    for path in (root / "sys/devices/system/node").glob("node[0-9]*"):
        number = int(path.name.removeprefix("node"))
        memory = _read_kib(path / "meminfo", "MemTotal:")
        found.append(NumaNode(number, parse_cpu_list(_read(path / "cpulist")), memory))
    return tuple(sorted(found, key=lambda node: node.number))


def _read_gpus(root: Path) -> dict[int, int]:
    """Return GPU -> its NUMA node; the driver's list tells both, the device files only the numbers."""
    gpus: dict[int, int] = {}
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*")):
        minor = re.search(r"Device Minor:\s+(\d+)", _read(path / "information"))
        if minor:
            near = _read_int(root / "sys/bus/pci/devices" / path.name / "numa_node")
            gpus[int(minor[1])] = -1 if near is None else near
    for path in (root / "dev").glob("nvidia[0-9]*"):
        gpus.setdefault(int(path.name.removeprefix("nvidia")), -1)
    return gpus


# Control groups ---------------------------------------------------------------------------------------------


def _control_groups(root: Path, controller: str) -> list[Path]:
    """Return the folders of the groups that limit this process, from its own up to the top, both versions."""
    folders: list[Path] = []
    top = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, names, group = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mounts = [top / names, top / controller] if names else [top, top / "unified"]
        inside = Path(group.lstrip("/"))
        parts = [] if ".." in inside.parts else [inside, *inside.parents]
        for mount in mounts:
            folders.extend(mount / part for part in (parts or [Path()]))
    return list(dict.fromkeys(folders))


def _control_group_quotas(root: Path) -> list[float]:
    quotas = []
    for folder in _control_groups(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
        old = _read_int(folder / "cpu.cfs_quota_us")
        per = _read_int(folder / "cpu.cfs_period_us")
        if old and per and old > 0:
            quotas.append(old / per)
    return quotas


def _control_group_memory(root: Path) -> list[int]:
    limits = []
    for folder in _control_groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read_int(folder / name)
            if limit is not None and limit > 0:
                limits.append(limit)
    return limits
