"""The disk of the simulation keeps what was synced, and of everything else what it likes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gspc_trio.components.job.shell.journal_files import JournalDirectory
from gspc_trio.records.shell.durable_files import append, make_directories, put_in_place
from gspc_trio.records.shell.journal_files import journals_in
from gspc_trio.testing.hunt import parse_schedule
from gspc_trio.testing.simulated.disk import ProcessFiles, SimulatedDisk
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.simulation import Options, simulate
from tests.simulation.broken_disks import (
    DISKS,
    journal_directory_not_synced,
    made_directories_not_synced,
    old_journal_removed_before_the_new_one_is_durable,
    old_journal_removed_first,
    results_not_synced,
    state_directory_not_synced,
)

# The clock of a test is found among its own arguments.
# ruff: noqa: ARG001

FOLDER = Path("/folder")
DRAWS = 60
SEEDS_MAX = 40
FOUND_AT = {
    journal_directory_not_synced: (15,),
    made_directories_not_synced: (3, 2),
    old_journal_removed_first: (3, 4),
    old_journal_removed_before_the_new_one_is_durable: (15, 21, 31),
    results_not_synced: (3, 2),
    state_directory_not_synced: (2, 5),
}
"""The seeds to begin with where few find it, or not soon."""
OUTAGES = "outage:job:10,outage:job:60,crash:job:100,outage:job:150,crash:rts:60,crash:rts:200"
"""Found among these faults without a long search; a hunt comes upon them, too."""


class NoObserver:
    """An observer of nothing."""

    def saw(self, machine, event, now, actions) -> None:
        del machine, event, now, actions

    def holds(self, queue) -> None:
        del queue


class Host:
    """A disk, and a process that writes to it."""

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk("the disk", Random(seed))
        self.start()
        make_directories(self.files, FOLDER)

    def start(self) -> None:
        self.process = SimulatedProcess("p", "job", "h", NoObserver(), lambda _process: None)
        self.files: ProcessFiles = self.disk.files(self.process)

    def crash(self) -> dict[str, bytes]:
        """Lose the power; return what is left in the folder."""
        self.process.kill(silently=True)
        self.start()
        return {name: self.files.read(FOLDER / name) for name in self.files.names(FOLDER)}


def left(work: Callable[[ProcessFiles], None]) -> list[dict[str, bytes]]:
    """Return all that may be left of some work after a power loss, each once."""
    found = []
    for seed in range(DRAWS):
        host = Host(seed)
        work(host.files)
        after = host.crash()
        if after not in found:
            found.append(after)
    return found


async def test_what_was_put_in_place_is_there_for_ever():
    def work(files: ProcessFiles) -> None:
        put_in_place(files, FOLDER / "a", b"old")
        append(files, put_in_place(files, FOLDER / "a", b"new"), b"er")

    assert left(work) == [{"a": b"newer"}]


async def test_content_that_was_not_synced_is_there_or_torn_or_zero():
    def work(files: ProcessFiles) -> None:
        files.write(put_in_place(files, FOLDER / "a", b"it"), b"em")

    found = [after["a"] for after in left(work)]
    assert set(found) == {b"it", b"it\0\0", b"ite", b"ite\0", b"item"}


async def test_names_that_were_not_synced_change_in_any_order():
    def work(files: ProcessFiles) -> None:
        put_in_place(files, FOLDER / "a", b"old")
        append(files, files.create(FOLDER / "new"), b"new")
        files.sync_directory(FOLDER)
        files.rename(FOLDER / "new", FOLDER / "b")
        files.remove(FOLDER / "a")

    old, new = {"a": b"old"}, {"b": b"new"}
    found = left(work)
    assert len(found) == 4
    assert all(after in found for after in (new, old | new, {"new": b"new"}, old | {"new": b"new"}))


async def test_a_directory_that_was_not_synced_may_be_gone_with_all_that_is_in_it():
    def make(files: ProcessFiles) -> None:
        files.make_directory(FOLDER / "below", private=True)
        put_in_place(files, FOLDER / "below" / "a", b"safe?")

    hosts = [Host(seed) for seed in range(DRAWS)]
    for host in hosts:
        make(host.files)
        host.disk.lose_power()
    there = [host for host in hosts if host.files.is_directory(FOLDER / "below")]
    assert 0 < len(there) < DRAWS
    assert all(host.files.read(FOLDER / "below" / "a") == b"safe?" for host in there)


@pytest.mark.parametrize("silently", [True, False])
async def test_a_journal_that_is_replaced_is_there_whenever_the_end_comes(
    silently, autojump_clock: MockClock
):
    found = set()
    for seed in range(DRAWS):
        host = Host(seed)
        journal = JournalDirectory(FOLDER, host.files)
        await journal.replace(b"old")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.replace, b"new")
            await wait_all_tasks_blocked()
            host.process.kill(silently=silently)
            nursery.cancel_scope.cancel()
        host.start()
        names = journals_in(host.files, FOLDER)
        found.add(host.files.read(FOLDER / names[-1]))
    assert found == {b"old", b"new"}


@pytest.mark.parametrize("variant", DISKS, ids=lambda variant: variant.__name__)
def test_who_writes_in_a_wrong_way_is_found(variant, monkeypatch):
    variant(monkeypatch.setattr)
    options = Options(hosts=1, tasks=12, schedule=parse_schedule(OUTAGES))
    seeds = (*FOUND_AT.get(variant, ()), *range(SEEDS_MAX))
    found = next((seed for seed in seeds if simulate(seed, options).broken), None)
    assert found is not None, f"{SEEDS_MAX} seeds, and nobody noticed: {variant.__doc__}"


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_by_who_writes_as_it_is_right(seed):
    report = simulate(seed, Options(hosts=1, tasks=12, schedule=parse_schedule(OUTAGES)))
    assert report.broken == "", report.story
