"""Runs whose results outlive the job server: ``run --journal`` and ``resume``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gspc_trio.cli.common import CommandError, interruptible
from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.shell.journal import Journal, create_journal, open_journal
from gspc_trio.components.job.shell.workflow_file import LoadedWorkflow, load_workflow_file
from gspc_trio.version import VERSION


@contextmanager
def new_journal(
    directory: Path | None, file: Path, settings: list[str], loaded: LoadedWorkflow, options: dict[str, Any]
) -> Iterator[Journal | None]:
    """The journal of a run that begins, for the time of a block; None without a directory.

    Raises:
        JournalError: the directory has one already, or others can look into it.
    """
    if directory is None:
        yield None
        return
    about = About(VERSION, str(file.resolve()), loaded.fingerprint, tuple(settings), options)
    with create_journal(directory, about) as journal:
        yield journal


@contextmanager
def old_journal(directory: Path) -> Iterator[tuple[Journal, LoadedWorkflow]]:
    """The journal of a run that was interrupted, and its workflow, for the time of a block.

    Raises:
        JournalError: there is none, or it is in use.
        CommandError: the workflow file or this program is another one than then.
    """
    with open_journal(directory) as journal:
        about = journal.about
        if about.version != VERSION:
            raise CommandError(
                f"the journal {directory} was written by version {about.version}, this is {VERSION}: "
                "resume it with that version, or run the workflow anew"
            )
        with interruptible():
            loaded = load_workflow_file(Path(about.file), list(about.settings))
        if loaded.fingerprint != about.fingerprint:
            raise CommandError(
                f"{about.file}, or a module that it imports from there, has changed since the journal "
                f"{directory} was begun: put the old text back, or run the new one with another --journal"
            )
        yield journal, loaded
