"""Batch jobs: what a batch system tells of them, and what a provider knows of its batch system (SWF-1)."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from attrs import field, frozen

from gspc_trio.components.provision.strategy import ends_in_s

Command: TypeAlias = tuple[str, ...]
"""A program and its arguments."""


class BadRequest(ValueError):
    """A batch job cannot be asked for like this; the message is one line for people."""


class HopelessRequest(BadRequest):
    """It would be refused again: nothing that is asked for like this will ever be a job."""


def refusal(said: str, hopeless: re.Pattern[str]) -> BadRequest:
    """Return the error for a job that was refused; ``hopeless`` finds words that will always be said."""
    return HopelessRequest(said) if hopeless.search(said) else BadRequest(said)


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
    UNKNOWN = "unknown"
    """The batch system knows it, and says where it is in a word that its provider does not know."""


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


NODE_VARIABLE, BATCH_ID_VARIABLE, RESTARTS_VARIABLE = "GSPC_NODE", "GSPC_BATCH_ID", "GSPC_RESTARTS"
"""Environment of what runs on each node of a batch job: the number of the node in the job, from 0; what the
batch system calls the job; how often it has started the job before."""


@frozen
class BatchRequest:
    """A batch job to submit.

    Attributes:
        name: nobody else uses it; letters, digits and "-".
        cores: of each node that it needs, 0 for the whole node.
        time_s: after which it is ended, seconds; 0 for the batch system's own limit.
        queue: partition or queue; "" for the usual one.
        account: who pays; "" for the usual one.
        arguments: more for the command that submits.
        output: file for what it prints.
        nodes: how many, which it gets all at once; 0: ``arguments`` say what it needs.
        script: what it runs; it has no secrets.
        folder: the directory of this job, in which the script is a file ``script``, too. The nodes see it,
            unless their batch system carries secrets (``Provider.secret_path``).
        secret: what a batch system that carries secrets is to give to the nodes, and to nobody else.
        options: what the user has set of the options that this provider alone knows.
        errors: file for what it prints as errors; "": ``output``.
        script_file: the file with the script; "": that in ``folder``.
    """

    name: str
    cores: int = 0
    time_s: int = 0
    queue: str = ""
    account: str = ""
    arguments: Sequence[str] = ()
    output: str = "/dev/null"
    nodes: int = 1
    script: str = field(default="", repr=False)
    folder: str = ""
    secret: str = field(default="", repr=False)
    options: Mapping[str, str] = field(factory=dict)
    errors: str = ""
    script_file: str = ""

    @property
    def script_path(self) -> str:
        """Return the file with the script."""
        return self.script_file or f"{self.folder}/script"


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
    """What differs from batch system to batch system: command lines, and what their output means (SWF-1).

    It runs nothing itself, so that its commands can be run anywhere, here or on a login node. What it
    inherits is for a batch system that counts in seconds and reads its script on standard input, and that
    cannot be asked what could run.
    """

    name: str
    """Of the batch system."""

    time_unit_s: int = 1
    """Seconds of the unit in which the batch system counts the time of a job."""

    restart_variable: str = ""
    """Environment variable of a batch job: how often it was started before; "" if there is none."""

    secret_path: str = ""
    """File in which nodes find the secret of a request, which the batch system carries; "" if it does not."""

    is_here: bool = False
    """Whether all nodes are this host, or the one where the commands run."""

    helper: Command = ()
    """Program with which its commands begin, and of which one process can answer all of them (see
    ``shell/helper.py``); () if each needs a process of its own."""

    options: tuple[str, ...] = ()
    """Names of the options that it knows besides those of all providers."""

    address: str = ""
    """Of the cluster, for a provider with an option ``address``."""

    def submit(self, request: BatchRequest) -> Command:
        """Return the command that submits.

        Raises:
            BadRequest: this batch system has no such job.
        """
        ...

    def submit_input(self, request: BatchRequest) -> str:
        """Return what the commands of ``submit`` and ``check`` read on standard input, secrets among it."""
        return request.script

    def submitted(self, result: CommandResult) -> str | None:
        """Return the id of the job that was submitted, or None if that is not clear.

        Raises:
            BadRequest: it was refused: there is no job.
            HopelessRequest: it always will be.
        """
        ...

    def check(self, request: BatchRequest) -> Command | None:
        """Return a command that asks whether such a job could ever run; None where that cannot be asked.

        Raises:
            BadRequest: this batch system has no such job.
        """
        self.submit(request)
        return None

    def checked(self, result: CommandResult) -> str:
        """Return why such a job can never run, in the batch system's words; "" if it can.

        Raises:
            QueryFailed: it did not say.
        """
        raise QueryFailed(result.words)

    def launch(self, request: BatchRequest, command: str) -> str:
        """Return lines of a script of ``/bin/sh`` that run a command once on each node of the job.

        Where the command runs, NODE_VARIABLE, BATCH_ID_VARIABLE and RESTARTS_VARIABLE are set. The lines end
        when it has ended on all nodes; where it fails, or a node is lost, it goes on elsewhere.

        Args:
            request: of the job; its ``script`` and ``secret`` may be missing yet.
            command: for ``/bin/sh``.
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

    def size(self) -> Command | None:
        """Return the command that tells how large the cluster is; None where users have to say it."""
        return None

    def sized(self, result: CommandResult) -> tuple[int, int]:
        """Return how many nodes there are, and the cores that each of them has at least.

        Raises:
            QueryFailed: it did not say.
        """
        raise QueryFailed(result.words)

    def output(self, name: str) -> Command | None:
        """Return the command that prints what a job has printed; None: ``BatchRequest.output`` has it."""
        del name
        return None


def on_node(command: str, node: str, batch_id: str, restarts: str = "0") -> str:
    """Return a command that runs another with the variables of its node.

    Args:
        command: for ``/bin/sh``.
        node, batch_id, restarts: what the variables are set to; shell variables in them are replaced.
    """
    values = {NODE_VARIABLE: node, BATCH_ID_VARIABLE: batch_id, RESTARTS_VARIABLE: restarts}
    settings = " ".join(f'{name}="{value}"' for name, value in values.items())
    return f"{settings}; export {' '.join(values)}; {command}"


_ON_ALL_NODES = """
command={command}
node=0
for place in $({places}); do
    told="{node_variable}=$node {batch_id_variable}={batch_id} {restarts_variable}=0"
    told="$told; export {node_variable} {batch_id_variable} {restarts_variable}; $command"
    if [ $node = 0 ]; then /bin/sh -c "$told" & else {elsewhere} & fi
    node=$((node + 1))
done
wait
"""


def on_all_nodes(command: str, batch_id: str, places: str, elsewhere: str) -> str:
    """Return a script for the first node of a job that runs a command on each of them.

    Args:
        command: for ``/bin/sh``.
        batch_id: what its variable is set to; shell variables in it are replaced.
        places: prints a word for each node, the first node first.
        elsewhere: runs ``$told``, which is for ``/bin/sh``, on the node of the word ``$place``.
    """
    return _ON_ALL_NODES.strip().format(
        command=shlex.quote(command),
        batch_id=batch_id,
        places=places,
        elsewhere=elsewhere,
        node_variable=NODE_VARIABLE,
        batch_id_variable=BATCH_ID_VARIABLE,
        restarts_variable=RESTARTS_VARIABLE,
    )


def time_units(request: BatchRequest, unit_s: int) -> int:
    """Return the time of a request in units of so many seconds, rounded up."""
    return -(-request.time_s // unit_s)


def clock_time(time_s: int) -> str:
    """Return a time in hours, minutes and seconds, as batch systems read it."""
    return f"{time_s // 3600}:{time_s // 60 % 60:02}:{time_s % 60:02}"


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
