"""Discovery of hardware, on made-up file systems (ASP-3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gspc_trio import hw_info
from gspc_trio.components.provision.shell.hardware import discover_hardware, parse_cpu_list, read_facts
from gspc_trio.core.resources import Resource, ResourceDag

GIB = 1 << 30


class Machine:
    """A made-up host below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")

    def sockets(self, *cpus_of_socket: tuple[int, ...]) -> None:
        for number, cpus in enumerate(cpus_of_socket):
            for cpu in cpus:
                self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", number)

    def numa(self, number: int, cpus: str, gib: int) -> None:
        folder = f"sys/devices/system/node/node{number}"
        self.write(f"{folder}/cpulist", cpus)
        self.write(
            f"{folder}/meminfo", f"Node {number} MemTotal:   {gib << 20} kB\nNode {number} MemFree: 1 kB"
        )

    def memory(self, gib: int) -> None:
        self.write("proc/meminfo", f"MemTotal:       {gib << 20} kB\nMemFree: 1 kB")

    def gpu(self, minor: int, address: str, near: int | None) -> None:
        self.write(f"proc/driver/nvidia/gpus/{address}/information", f"Model: X\nDevice Minor:  {minor}")
        if near is not None:
            self.write(f"sys/bus/pci/devices/{address}/numa_node", near)

    def discover(self, cores: int = 0, affinity: tuple[int, ...] = (0, 1, 2, 3)) -> tuple[Resource, ...]:
        found = discover_hardware("r1", cores, root=self.root, affinity=affinity)
        assert ResourceDag(found).resources == found
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two sockets of two CPUs, 8 GiB each."""
    made = Machine(tmp_path)
    made.sockets((0, 1), (2, 3))
    made.numa(0, "0-1", 8)
    made.numa(1, "2-3", 8)
    made.memory(16)
    return made


def cores_of(found: tuple[Resource, ...]) -> list[str]:
    return [resource.resource_id for resource in found if resource.resource_class == "core"]


def test_a_host_is_a_node_of_sockets_of_cores(machine: Machine) -> None:
    assert machine.discover() == (
        Resource("r1.node", "node", (), (0, 1, 2, 3), 16 * GIB),
        Resource("r1.socket0", "socket", ("r1.node",), (0, 1), 8 * GIB),
        Resource("r1.socket1", "socket", ("r1.node",), (2, 3), 8 * GIB),
        Resource("r1.core0", "core", ("r1.socket0",), (0,)),
        Resource("r1.core1", "core", ("r1.socket0",), (1,)),
        Resource("r1.core2", "core", ("r1.socket1",), (2,)),
        Resource("r1.core3", "core", ("r1.socket1",), (3,)),
    )


def test_only_cpus_in_the_affinity_mask_are_offered(machine: Machine) -> None:
    assert machine.discover(affinity=(2, 3)) == (
        Resource("r1.node", "node", (), (2, 3), 16 * GIB),
        Resource("r1.socket1", "socket", ("r1.node",), (2, 3), 16 * GIB),
        Resource("r1.core2", "core", ("r1.socket1",), (2,)),
        Resource("r1.core3", "core", ("r1.socket1",), (3,)),
    )


def test_more_cores_than_cpus_are_shared_out_and_not_pinned(machine: Machine) -> None:
    found = machine.discover(cores=6)
    assert all(resource.cpus == () for resource in found)
    below = [(r.resource_id, r.parents[0]) for r in found if r.resource_class == "core"]
    assert below == [(f"r1.core{n}", f"r1.socket{n // 3}") for n in range(6)]


def test_fewer_cores_than_cpus_are_not_pinned_and_need_no_empty_socket(machine: Machine) -> None:
    assert machine.discover(cores=1) == (
        Resource("r1.node", "node", (), (), 16 * GIB),
        Resource("r1.socket0", "socket", ("r1.node",), (), 16 * GIB),
        Resource("r1.core0", "core", ("r1.socket0",)),
    )


def test_as_many_cores_as_cpus_are_pinned(machine: Machine) -> None:
    assert machine.discover(cores=4) == machine.discover()


def test_a_negative_number_of_cores_is_refused(machine: Machine) -> None:
    with pytest.raises(ValueError, match="-1 cores"):
        machine.discover(cores=-1)


def test_a_host_that_tells_nothing_still_has_its_cpus(tmp_path: Path) -> None:
    found = discover_hardware("r1", root=tmp_path, affinity=(0, 1))
    assert found == (
        Resource("r1.node", "node", (), (0, 1)),
        Resource("r1.socket0", "socket", ("r1.node",), (0, 1)),
        Resource("r1.core0", "core", ("r1.socket0",), (0,)),
        Resource("r1.core1", "core", ("r1.socket0",), (1,)),
    )


def test_a_socket_numbered_minus_one_counts_as_the_first(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", -1)
    assert machine.discover(affinity=(0,))[1].resource_id == "r1.socket0"


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        ("200000", "100000", 2),
        ("250000", "100000", 2),
        ("20000", "100000", 1),
        ("900000", "100000", 4),
        ("max", "100000", 4),
    ],
)
def test_a_quota_of_control_groups_2_lowers_the_number_of_cores(
    machine: Machine, quota: str, period: str, cores: int
) -> None:
    machine.write("proc/self/cgroup", "0::/user/app")
    machine.write("sys/fs/cgroup/user/cpu.max", f"{quota} {period}")
    found = machine.discover()
    assert len(cores_of(found)) == cores
    assert bool(found[0].cpus) == (cores == 4)


def test_quota_and_memory_of_control_groups_1(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "4:memory:/job/7\n1:cpu,cpuacct:/\n9:name=systemd:/\n0::/")
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 300_000)
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", 100_000)
    machine.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 4 * GIB)
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    found = machine.discover()
    assert len(cores_of(found)) == 3
    assert [resource.memory_bytes for resource in found[:3]] == [4 * GIB, 4 * GIB, 4 * GIB]


def test_without_a_quota_control_groups_1_say_minus_one(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "1:cpu:/")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", -1)
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", 100_000)
    assert len(cores_of(machine.discover())) == 4


def test_memory_limit_of_control_groups_2_counts_on_every_level(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/../outer")
    machine.write("sys/fs/cgroup/memory.max", 2 * GIB)
    assert machine.discover()[0].memory_bytes == 2 * GIB
    machine.write("proc/self/cgroup", "0::/a/b")
    machine.write("sys/fs/cgroup/a/b/memory.max", "max")
    machine.write("sys/fs/cgroup/a/memory.max", GIB)
    assert machine.discover()[0].memory_bytes == GIB


def test_gpus_hang_below_the_socket_that_they_are_near_to(machine: Machine) -> None:
    machine.gpu(0, "0000:01:00.0", 1)
    machine.gpu(1, "0000:02:00.0", -1)
    machine.write("dev/nvidia2", "")
    machine.write("dev/nvidiactl", "")
    found = {resource.resource_id: resource for resource in machine.discover()}
    assert found["r1.gpu0"] == Resource("r1.gpu0", "gpu", ("r1.socket1",), gpus=(0,))
    assert found["r1.gpu1"] == Resource("r1.gpu1", "gpu", ("r1.node",), gpus=(1,))
    assert found["r1.gpu2"] == Resource("r1.gpu2", "gpu", ("r1.node",), gpus=(2,))
    assert found["r1.node"].gpus == (0, 1, 2)
    assert found["r1.socket1"].gpus == (0,)
    assert found["r1.socket0"].gpus == ()


def test_flags_of_the_processor_are_features_of_the_host(machine: Machine) -> None:
    assert machine.discover()[0].features == ()
    other = "processor : 1\nflags : none of these"
    machine.write("proc/cpuinfo", f"processor : 0\nmodel name : X\nflags\t\t: sse avx2 sse a/b\n\n{other}")
    assert [one.features for one in machine.discover()][:2] == [("avx2", "sse"), ()]
    machine.write("proc/cpuinfo", "Features : asimd fp")  # ARM
    assert machine.discover()[0].features == ("asimd", "fp")


def test_kernel_lists() -> None:
    assert parse_cpu_list("0-2,5") == (0, 1, 2, 5)
    assert parse_cpu_list("") == ()


def test_this_machine() -> None:
    facts = read_facts()
    assert set(facts.cpus) == os.sched_getaffinity(0)
    assert facts.memory_bytes > 0
    assert len(cores_of(discover_hardware("r1"))) == facts.cores


def test_hw_info_describes_this_machine() -> None:
    info = hw_info()
    assert info["sockets"] >= 1
    assert info["cpus"] == sorted(os.sched_getaffinity(0))
    assert all(disk["size_bytes"] >= 0 for disk in info["disks"])
