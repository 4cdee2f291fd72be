"""Batch jobs: what a batch system tells of them, and what a provider knows of its batch system (SWF-1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from attrs import frozen

from gspc_trio.components.provision.strategy import ends_in_s

Command: TypeAlias = tuple[str, ...]
"""A program and its arguments."""


class BadRequest(ValueError):
    """A batch job cannot be asked for like this; the message is one line for people."""


class QueryFailed(Exception):
    """The batch system has not answered: nothing is known that was not known before."""


class BatchState(StrEnum):
    """Where a batch job is."""

    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """It has ended for the batch system, which has lost sight of its node: it may still run."""


@frozen
class BatchJob:
    """A batch job as the batch system tells of it.

    Attributes:
        job_id: what the batch system calls it.
        name: what it was submitted as.
        state: where it is.
        reason: why it waits or how it ended, in the batch system's words.
        is_hopeless: it waits for what will never be.
    """

    job_id: str
    name: str
    state: BatchState
    reason: str = ""
    is_hopeless: bool = False


@frozen
class BatchRequest:
    """A batch job to submit.

    Attributes:
        name: nobody else uses it.
        cores: of its node that it needs, 0 for the whole node.
        time_s: after which it is ended, seconds; 0 for the batch system's own limit.
        queue: partition or queue; "" for the usual one.
        account: who pays; "" for the usual one.
        arguments: more for the command that submits.
        output: file for what it prints.
    """

    name: str
    cores: int = 0
    time_s: int = 0
    queue: str = ""
    account: str = ""
    arguments: Sequence[str] = ()
    output: str = "/dev/null"


@frozen
class CommandResult:
    """How a command of a batch system ended.

    Attributes:
        status: exit status.
        output, errors: what it printed.
    """

    status: int
    output: str
    errors: str

    @property
    def words(self) -> str:
        """Return what it said was wrong, in one line."""
        return " ".join((self.errors or self.output).split()) or f"exit status {self.status}"


class Provider(Protocol):
    """What differs from batch system to batch system: command lines, and what their output means."""

    name: str
    """Of the batch system."""

    restart_variable: str
    """Environment variable of a batch job: how often it was started before; "" if there is none."""

    def submit(self, request: BatchRequest) -> Command:
        """Return the command that submits; it reads the script on standard input."""
        ...

    def submitted(self, result: CommandResult) -> str | None:
        """Return the id of the job that was submitted, or None if that is not clear.

        Raises:
            BadRequest: it was refused: there is no job.
        """
        ...

    def query(self, job_id: str = "") -> Command:
        """Return the command that tells of this job, or of all of the user's."""
        ...

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """Return the jobs that a query has told of; none if it says that there is no such job.

        Raises:
            QueryFailed: it did not say.
        """
        ...

    def cancel(self, job_id: str, name: str) -> Command:
        """Return the command that cancels a job, by name if its id is not known (``job_id`` is "")."""
        ...


def request_of(name: str, cores: int, options: Mapping[str, str]) -> BatchRequest:
    """Return the request that the options of a user mean: ``time``, ``queue``, ``account``, ``arguments``.

    Raises:
        ValueError: the time is none; the message is one line for people.
    """
    return BatchRequest(
        name,
        cores,
        math.ceil(ends_in_s(options) or 0),
        options.get("queue", ""),
        options.get("account", ""),
        options.get("arguments", "").split(),
    )
