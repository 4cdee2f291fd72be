"""Runs whose results outlive the job server: ``run --journal`` and ``resume``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from gspc_trio.cli.common import CommandError, interruptible
from gspc_trio.components.job import JobResult, RtsLost
from gspc_trio.components.journal import Journal, create_journal, open_journal
from gspc_trio.components.workflow_file import LoadedWorkflow, load_workflow_file
from gspc_trio.nursery.connection_file import find_live_connection
from gspc_trio.nursery.errors import ConnectFailed
from gspc_trio.protocol.journal import About
from gspc_trio.version import VERSION

log = logging.getLogger(__name__)

RESUME_GRACE_S = 30.0
"""How long a journaled job waits for its run-time system to come back."""

LOOK_INTERVAL_S = 0.2


async def outlive_rts(
    attempt: Callable[[], Awaitable[JobResult]], journal: Journal | None, rts_file: Path | None
) -> JobResult:
    """Run a job; one with a journal goes on from it when its run-time system has gone and is back in time.

    Args:
        attempt: runs the job to its end.
        journal: of the job, or None.
        rts_file: connection file of the run-time system, or None if it ends with this program.

    Raises:
        What the attempt raises.
    """
    while True:
        try:
            return await attempt()
        except (RtsLost, ConnectFailed) as lost:
            if journal is None or rts_file is None or not journal.is_begun:
                raise
            log.warning("%s; waiting %g s for it to come back", lost, RESUME_GRACE_S)
            with trio.move_on_after(RESUME_GRACE_S) as scope:
                # Nobody tells of a process that is to come: its file is all there is to see.
                while await find_live_connection(rts_file) is None:  # noqa: ASYNC110
                    await trio.sleep(LOOK_INTERVAL_S)
            if scope.cancelled_caught:
                raise
            journal.read_again()


@contextmanager
def new_journal(
    directory: Path | None, file: Path, settings: list[str], loaded: LoadedWorkflow, options: dict[str, Any]
) -> Iterator[Journal | None]:
    """The journal of a run that begins, for the time of a block; None without a directory.

    Raises:
        JournalError: the directory has one already, or others can write to it.
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
