"""Runs whose results outlive the job server: ``run --journal`` and ``resume``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from msgspec import Struct
from msgspec.structs import asdict, replace

from gspc_trio.cli.common import CommandError, RtsFiles, UsageError, interruptible, print_json
from gspc_trio.components.job.credentials import open_settings
from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.reuse import Reuse
from gspc_trio.components.job.shell.journal import Journal, create_journal, open_journal
from gspc_trio.components.job.shell.workflow_file import (
    FROM_ITSELF,
    LoadedWorkflow,
    Reading,
    load_workflow_file,
)
from gspc_trio.nursery.connections.connection_file import find_live_connection
from gspc_trio.policies.scheduling import DEFAULT
from gspc_trio.protocol.plain import from_plain, to_plain
from gspc_trio.version import VERSION
from gspc_trio.workflow.definition import SettingError, Workflow, transformed


class RunOptions(Struct, frozen=True):
    """Options of a run that count again when it is resumed; names are those of ``JobSettings``.

    ``locations`` are the connection files of several run-time systems, by name.
    """

    name: str
    keep_going: bool = False
    threads: bool = False
    weight: float = 1.0
    priority: int = 0
    policy: str = DEFAULT
    large_bytes_min: int | None = None
    reading: Reading = FROM_ITSELF
    placement: str = ""
    assign: str = ""
    plan: str = ""
    tightness: float = 0.0
    locations: dict[str, str] = {}

    def on(self, rts: RtsFiles) -> RunOptions:
        """Return the options of a run on these run-time systems."""
        named = rts if isinstance(rts, dict) else {}
        return replace(self, locations={name: str(file.absolute()) for name, file in named.items()})


async def are_back(files: Collection[Path]) -> bool:
    """Whether all run-time systems of a run answer again, by their connection files."""
    return all([await find_live_connection(file) for file in files])


@contextmanager
def new_journal(
    directory: Path | None, file: Path, settings: list[str], loaded: LoadedWorkflow, options: RunOptions
) -> Iterator[Journal | None]:
    """The journal of a run that begins, for the time of a block; None without a directory.

    Raises:
        JournalError: the directory has one already, or others can look into it.
    """
    if directory is None:
        yield None
        return
    plain = asdict(options)
    del plain["reading"]
    if not options.locations:
        del plain["locations"]
    if options.reading != FROM_ITSELF:
        plain["reading"] = asdict(options.reading)
    about = About(VERSION, str(file.resolve()), loaded.fingerprint, tuple(settings), plain)
    with create_journal(directory, about) as journal:
        yield journal


@contextmanager
def old_journal(
    directory: Path, given: list[str], *, changed: bool = False
) -> Iterator[tuple[Journal, LoadedWorkflow]]:
    """The journal of a run that was interrupted, and its workflow, for the time of a block.

    Args:
        directory: that was given to --journal.
        given: settings once more that have credentials, which the journal does not have.
        changed: whether the workflow file may be another one than then, and settings that are given others.

    Raises:
        JournalError: there is none, or it is in use.
        CommandError: the workflow file or this program is another one than then.
        UsageError: the settings do not suit the workflow file as it is now, or are not those of then.
    """
    with open_journal(directory, changed=changed, given=given) as journal:
        about = journal.about
        if about.version != VERSION:
            raise CommandError(
                f"the journal {directory} was written by version {about.version}, this is {VERSION}: "
                "resume it with that version, or run the workflow anew"
            )
        settings = _settings_of(about, given, changed=changed)
        try:
            with interruptible():
                reading = from_plain(about.options, RunOptions).reading
                loaded = load_workflow_file(Path(about.file), settings, reading)
        except SettingError as error:
            if not changed:
                raise
            kept = " ".join(f"--set {setting}" for setting in about.settings) or "no settings"
            raise UsageError(
                f"{error}; the run was started with {kept}: workflow() must still take these, used or not, "
                "and --set changes or adds some"
            ) from error
        if changed:
            journal.about = replace(about, fingerprint=loaded.fingerprint)
            journal.settings_are(settings)
        elif loaded.fingerprint != about.fingerprint:
            raise CommandError(
                f"{about.file}, or a module that it imports from there, has changed since the journal "
                f"{directory} was begun: to go on with the new text, with those results that still suit, use "
                f"gspc-jobserver resume --changed {directory}"
            )
        yield journal, loaded


def _settings_of(about: About, given: list[str], *, changed: bool) -> list[str]:
    """Return the settings of a run that is resumed.

    Raises:
        UsageError: some are missing since the journal does not have them, or are others than then.
    """
    settings, _, missing = open_settings(about.sealed, given)
    if changed:
        names = {setting.partition("=")[0] for setting in given}
        missing = [setting for setting in missing if setting.partition("=")[0] not in names]
    if missing:
        asked = " ".join(f"--set {setting}" for setting in missing)
        raise UsageError(f"the journal has no credentials: give these settings again, as they were: {asked}")
    if changed:
        return changed_settings(settings, given)
    if not set(given).issubset(settings):
        raise UsageError("--set goes with --changed: with other settings the workflow is another one")
    return settings


def changed_settings(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """Return settings ``name=value``, those of now in place of all those of before that have their names.

    Several of one name stay: they are several tokens of a port.
    """
    now = list(now)
    names = {setting.partition("=")[0] for setting in now}
    return [setting for setting in before if setting.partition("=")[0] not in names] + now


async def list_reuse(journal: Journal, workflow: Workflow, alone: bool, json_file: TextIO | None) -> None:
    """Say which results of a journal a workflow that has changed keeps.

    Args:
        journal: of the workflow before it changed.
        workflow: as it is now.
        alone: whether nothing is to follow; otherwise the list goes to standard error.
        json_file: for one object of JSON, if nothing is to follow; or None.

    Raises:
        WorkflowError: the values do not fit the workflow, or a condition or an inline transition raised.
    """
    found = await journal.compare(transformed(workflow.net, workflow.transformations), workflow.values)
    if alone and json_file is not None:
        print_json({"transitions": to_plain(found.transitions), "unknown": found.unknown}, json_file)
    else:
        print("\n".join(describe_reuse(found)), file=sys.stdout if alone else sys.stderr)


def describe_reuse(found: Reuse) -> list[str]:
    """Return what becomes of the results of a journal, as lines for people."""
    rows = [("TRANSITION", "KEPT", "MAYBE", "DROPPED", "TO RUN", "")]
    rows += [
        (one.name, str(one.kept), str(one.waiting), str(one.dropped), str(one.ready), one.why)
        for one in found.transitions
    ]
    width = max(len(name) for name, *_ in rows)
    lines = [
        f"{name:<{width}}{kept:>8}{maybe:>8}{dropped:>9}{ready:>8}  {why}".rstrip()
        for name, kept, maybe, dropped, ready, why in rows
    ]
    if found.unknown:
        lines.append(f"{found.unknown} results are dropped: the journal does not say what their tasks were")
    return lines
