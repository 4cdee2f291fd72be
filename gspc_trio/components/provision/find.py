"""Providers by their names: those of gspc-trio, and those that installed packages offer (SWF-1).

A package offers one under the entry point group ``gspc_trio.providers``: a name and a callable without
arguments that returns a :class:`~gspc_trio.components.provision.batch.Provider`.
"""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
)
from gspc_trio.core.similar import did_you_mean

ENTRY_POINTS = "gspc_trio.providers"
"""Group in which packages offer providers."""

BUILT_IN = {
    "slurm": ("gspc_trio.components.provision.providers.slurm", "SlurmProvider"),
    "pbs": ("gspc_trio.components.provision.providers.pbs", "PbsProvider"),
    "oar": ("gspc_trio.components.provision.providers.oar", "OarProvider"),
    "mpi": ("gspc_trio.components.provision.providers.mpi", "MpiProvider"),
    "local": ("gspc_trio.components.provision.providers.local", "LocalProvider"),
    "kubernetes": ("gspc_trio.components.provision.providers.kubernetes", "KubernetesProvider"),
    "dask": ("gspc_trio.components.provision.providers.task_engine", "DaskProvider"),
    "ray": ("gspc_trio.components.provision.providers.task_engine", "RayProvider"),
}
"""Name of a provider -> its module and class."""


SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""The client and its options: it asks nobody for a password."""

SSH_FAILED = 255
"""Exit status of the client when it is the client that failed: whether the command ran is not known."""

_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*")


class ProviderError(ValueError):
    """There is no such provider, or it cannot be used; the message is one line for people."""


NO_PROVIDER = "there is no provider"
"""So a message begins about a name that nobody offers."""


def provider_names() -> list[str]:
    """Return the names of all providers: the built-in ones, then those that installed packages offer."""
    return [*BUILT_IN, *sorted(_offered().keys() - BUILT_IN.keys())]


def find_provider(name: str, via: str = "", address: str = "") -> Provider:
    """Return the provider of this name.

    Args:
        name: of the provider.
        via: who runs its commands, such as ``ssh:login``; "" for this host.
        address: of the cluster, for a provider that has an option of this name.

    Raises:
        ProviderError: nobody offers it, it cannot be loaded, it is no provider, or ``via`` is something else.
    """
    if via:
        kind, _, host = via.partition(":")
        if kind != "ssh" or not _HOST.fullmatch(host):
            raise ProviderError(f"via {via!r}: commands can run on another host by ssh: write ssh:HOST")
        return DelegatedProvider(find_provider(name, address=address), host)
    provider = _find(name)
    if "address" in provider.options:
        provider.address = address
    return provider


def _find(name: str) -> Provider:
    if name in BUILT_IN:
        module, kind = BUILT_IN[name]
        return cast("type[Provider]", getattr(import_module(module), kind))()
    entry = _offered().get(name)
    if entry is None:
        there = provider_names()
        raise ProviderError(
            f"{NO_PROVIDER} {name!r}{did_you_mean(name, there)}; there are: {', '.join(there)}"
        )
    try:
        found: object = entry.load()()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ProviderError(f"the provider {name!r} of {entry.value} cannot be used: {what}") from error
    missing = [member for member in _members() if not hasattr(found, member)]
    if missing:
        raise ProviderError(f"the provider {name!r} of {entry.value} is {found!r}, which has no {missing[0]}")
    return cast("Provider", found)


class DelegatedProvider(Provider):
    """A provider whose commands run on another host, by ssh (SWF-1).

    The directory for jobs is to be seen there, too.

    Args:
        provider: knows the batch system.
        host: where its commands run, as ssh calls it.
    """

    def __init__(self, provider: Provider, host: str) -> None:
        self._provider, self._host = provider, host
        self.name: str = provider.name
        self.time_unit_s: int = provider.time_unit_s
        self.restart_variable: str = provider.restart_variable
        self.secret_path: str = provider.secret_path
        self.options: tuple[str, ...] = provider.options

    def _there(self, command: Command) -> Command:
        return (*SSH, "--", self._host, shlex.join(command))

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        return self._there(self._provider.submit(request))

    def submit_input(self, request: BatchRequest) -> str:
        """See Provider."""
        return self._provider.submit_input(request)

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        return None if result.status == SSH_FAILED else self._provider.submitted(result)

    def check(self, request: BatchRequest) -> Command | None:
        """See Provider."""
        command = self._provider.check(request)
        return None if command is None else self._there(command)

    def checked(self, result: CommandResult) -> str:
        """See Provider."""
        return self._provider.checked(_answered(result))

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        return self._provider.launch(request, command)

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        return self._there(self._provider.query(job_id))

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        return self._provider.told(_answered(result))

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        return self._there(self._provider.cancel(job_id, name))

    def size(self) -> Command | None:
        """See Provider."""
        command = self._provider.size()
        return None if command is None else self._there(command)

    def sized(self, result: CommandResult) -> tuple[int, int]:
        """See Provider."""
        return self._provider.sized(_answered(result))

    def output(self, name: str) -> Command | None:
        """See Provider."""
        command = self._provider.output(name)
        return None if command is None else self._there(command)


def _answered(result: CommandResult) -> CommandResult:
    """Return the result of a command that has run.

    Raises:
        QueryFailed: ssh could not run it.
    """
    if result.status == SSH_FAILED:
        raise QueryFailed(result.words)
    return result


def _offered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _members() -> list[str]:
    names = {**vars(Provider), **Provider.__annotations__}
    return sorted(name for name in names if not name.startswith("_"))
