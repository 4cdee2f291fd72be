"""Adapters: how the jobs of a study are started, one for each value of the option ``scheduler`` (MEL-4).

A package offers one more under the entry point group ``gspc_trio.adapters``: a name and a callable without
arguments that returns an :class:`Adapter`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, TypeAlias, cast

from attrs import field, frozen

from gspc_trio.components.launcher.options import ADAPTER_ENTRY_POINTS, BadOption, LauncherOptions
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.batch import Command, Provider
from gspc_trio.core.similar import did_you_mean

BUILT_IN = {
    "local": ("gspc_trio.components.launcher.adapters.local", "LocalAdapter"),
    "openmpi": ("gspc_trio.components.launcher.adapters.openmpi", "OpenMpiAdapter"),
    "slurm": ("gspc_trio.components.launcher.adapters.slurm", "SlurmAdapter"),
    "slurm-srun": ("gspc_trio.components.launcher.adapters.slurm_srun", "SlurmSrunAdapter"),
    "slurm-mixed": ("gspc_trio.components.launcher.adapters.slurm_mixed", "SlurmMixedAdapter"),
    "slurm-openmpi": ("gspc_trio.components.launcher.adapters.slurm_openmpi", "SlurmOpenMpiAdapter"),
    "oar": ("gspc_trio.components.launcher.adapters.oar", "OarAdapter"),
    "oar-hybrid": ("gspc_trio.components.launcher.adapters.oar_hybrid", "OarHybridAdapter"),
}
"""Name of an adapter -> its module and class."""


@frozen
class HostProcess:
    """A process of this host that is a job, or a part of one.

    Attributes:
        command: program and arguments.
        client_ids: of the clients that it is, or runs; none: it is the server.
        end_rest: command that ends what it has left elsewhere when it was killed; none: it leaves nothing.
    """

    command: Command
    client_ids: tuple[int, ...] = ()
    end_rest: Command = ()


@frozen
class DirectStart:
    """The job is processes of this host: it is watched here, and its id is that of the first process.

    Each of them leads a session of its own, and is ended with all that it has started.

    Attributes:
        processes: to start.
        files: to write before that: path -> content.
    """

    processes: tuple[HostProcess, ...]
    files: Mapping[str, str] = field(factory=dict)


@frozen
class IndirectStart:
    """The job is submitted by a command; the provider reads its answer, and tells of the job.

    Attributes:
        command: program and arguments.
        stdin: what it reads.
        files: to write before that: path -> content.
    """

    command: Command
    stdin: str = ""
    files: Mapping[str, str] = field(factory=dict)


JobStart: TypeAlias = DirectStart | IndirectStart


class Adapter(Protocol):
    """How the jobs of a study are started.

    It runs nothing itself. What it inherits is for one whose jobs are processes of this host.
    """

    name: str
    """Value of the option ``scheduler``."""

    provider: Provider | None = None
    """What tells of jobs that were submitted, and cancels them; None: all jobs are processes of this host."""

    programs: tuple[str, ...] = ()
    """Programs that this host needs."""

    jobs_per_server: int = 1
    """How many jobs of the engine there are for a server; all count for ``job_limit``."""

    def check(self, options: LauncherOptions) -> None:
        """Look whether the options can be used.

        Raises:
            BadOption: no; the message is one line for people.
        """
        del options

    def start(self, job: StudyJob) -> JobStart:
        """Return how to start a job.

        Raises:
            BadRequest: there can be no such job; the message is one line for people.
        """
        ...

    def end_client(self, job: StudyJob, job_id: str, client_id: int) -> Command | None:
        """Return the command that ends one client of a job that was submitted, while the others go on.

        None: the job's own script looks for the file ``JobProcess.cancel``, and ends it. In a job of this
        host the process of the client is ended.
        """
        del job, job_id, client_id
        return None


def find_adapter(options: LauncherOptions) -> Adapter:
    """Return the adapter that the options name.

    Raises:
        BadOption: nobody offers it, it cannot be loaded, it is no adapter, or it cannot use the options.
    """
    adapter = _find(options.scheduler)
    adapter.check(options)
    return adapter


def _find(name: str) -> Adapter:
    if name in BUILT_IN:
        module, kind = BUILT_IN[name]
        return cast("type[Adapter]", getattr(import_module(module), kind))()
    entry = _offered().get(name)
    if entry is None:
        there = [*BUILT_IN, *sorted(_offered())]
        near = did_you_mean(name, there)
        raise BadOption(f"scheduler: there is no {name!r}{near}; there are: {', '.join(there)}")
    try:
        found: object = entry.load()()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise BadOption(f"scheduler: {name!r} of {entry.value} cannot be used: {what}") from error
    missing = [member for member in _members() if not hasattr(found, member)]
    if missing:
        raise BadOption(f"scheduler: {name!r} of {entry.value} is {found!r}, which has no {missing[0]}")
    return cast("Adapter", found)


def _offered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ADAPTER_ENTRY_POINTS)}


def _members() -> Iterator[str]:
    return (name for name in sorted({**vars(Adapter), **Adapter.__annotations__}) if not name.startswith("_"))
