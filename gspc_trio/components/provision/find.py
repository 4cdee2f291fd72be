"""Providers by their names: those of gspc-trio, and those that installed packages offer (SWF-1).

A package offers one under the entry point group ``gspc_trio.providers``: a name and a callable without
arguments that returns a :class:`~gspc_trio.components.provision.batch.Provider`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from gspc_trio.components.provision.batch import Provider
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
}
"""Name of a provider -> its module and class."""


class ProviderError(ValueError):
    """There is no such provider, or it cannot be used; the message is one line for people."""


def provider_names() -> list[str]:
    """Return the names of all providers: the built-in ones, then those that installed packages offer."""
    return [*BUILT_IN, *sorted(_offered().keys() - BUILT_IN.keys())]


def find_provider(name: str) -> Provider:
    """Return the provider of this name.

    Raises:
        ProviderError: nobody offers it, it cannot be loaded, or it is no provider.
    """
    if name in BUILT_IN:
        module, kind = BUILT_IN[name]
        return cast("type[Provider]", getattr(import_module(module), kind))()
    entry = _offered().get(name)
    if entry is None:
        there = provider_names()
        raise ProviderError(
            f"there is no provider {name!r}{did_you_mean(name, there)}; there are: {', '.join(there)}"
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


def _offered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _members() -> list[str]:
    names = {**vars(Provider), **Provider.__annotations__}
    return sorted(name for name in names if not name.startswith("_"))
