"""Ways to write to a disk that are wrong on purpose: each must be found by simulating."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gspc_trio.components.rts.shell import state_files as rts_state
from gspc_trio.records.shell import durable_files, journal_files
from gspc_trio.records.shell.durable_files import FileSystem, create_aside, put_in_place
from gspc_trio.testing.simulated import disk, rts_memory

Patch = Callable[[Any, str, Any], None]
"""``monkeypatch.setattr``."""


def _write(files: FileSystem, descriptor: int, data: bytes) -> None:
    files.write(descriptor, data)


def results_not_synced(patch: Patch) -> None:
    """What is added to a journal is not made durable."""
    patch(journal_files, "append", _write)


def new_files_not_synced(patch: Patch) -> None:
    """What is written aside is not made durable before it is put in place."""
    patch(durable_files, "append", _write)


def _put(files: FileSystem, path: Path, data: bytes) -> int:
    descriptor = create_aside(files, path.parent, data)
    files.rename(path.parent / durable_files.ASIDE, path)
    return descriptor


def journal_directory_not_synced(patch: Patch) -> None:
    """The name of a new journal is not made durable."""
    patch(journal_files, "put_in_place", _put)


def state_directory_not_synced(patch: Patch) -> None:
    """The name of a new state is not made durable."""
    patch(rts_state, "put_in_place", _put)


def made_directories_not_synced(patch: Patch) -> None:
    """The name of the directory of a journal is not made durable."""

    def make(files: FileSystem, directory: Path) -> None:
        for path in (*reversed(directory.parents), directory):
            if not files.is_directory(path):
                files.make_directory(path, private=True)

    for module in (disk, rts_memory):
        patch(module, "make_directories", make)


def old_journal_removed_first(patch: Patch) -> None:
    """The old file of a journal goes before the new one is in place."""

    def replace(files: FileSystem, directory: Path, data: bytes, keep: bool) -> int:
        del keep
        old = journal_files.journals_in(files, directory)
        for name in old:
            files.remove(directory / name)
        number = int(old[-1].partition(".")[2]) + 1 if old else 1
        return put_in_place(files, directory / f"journal.{number:06}", data)

    patch(journal_files, "_replace", replace)


def old_journal_removed_before_the_new_one_is_durable(patch: Patch) -> None:
    """The old file of a journal goes when the new one is in place, but not for good."""

    def replace(files: FileSystem, directory: Path, data: bytes, keep: bool) -> int:
        del keep
        old = journal_files.journals_in(files, directory)
        number = int(old[-1].partition(".")[2]) + 1 if old else 1
        descriptor = _put(files, directory / f"journal.{number:06}", data)
        for name in old:
            files.remove(directory / name)
        files.sync_directory(directory)
        return descriptor

    patch(journal_files, "_replace", replace)


DISKS: list[Any] = [
    results_not_synced,
    new_files_not_synced,
    journal_directory_not_synced,
    state_directory_not_synced,
    made_directories_not_synced,
    old_journal_removed_first,
    old_journal_removed_before_the_new_one_is_durable,
]
