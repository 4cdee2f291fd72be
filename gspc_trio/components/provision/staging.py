"""How the files of tasks get to a host: by its RIF, by way of a site directory, or by the wrapper."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from enum import StrEnum

from attrs import field, frozen

from gspc_trio.components.provision.strategy import STAGING_OPTIONS
from gspc_trio.components.provision.throttle import DEFAULTS, OFF, Limit, parse_throttles
from gspc_trio.core.similar import did_you_mean

FILE_THROTTLES = tuple(name for name in STAGING_OPTIONS if name in DEFAULTS)
"""Throttles of file transfers and file operations."""

REMOVAL_TIME_S = 600
"""The batch job that removes a site directory may take so long, seconds."""


class StagingMode(StrEnum):
    """Who stages the files of a task."""

    PROVIDER = "provider"
    """The RIF, straight between the host of the job and the directory of the task."""

    SWIFT = "swift"
    """The RIF, by way of a directory that all hosts of the site see: what several tasks need comes once."""

    WRAPPER = "wrapper"
    """The process that runs the task, from the directory of the job, which it sees itself."""


@frozen
class StagingSettings:
    """How the tasks of one host have their files.

    Attributes:
        mode: who stages.
        site_directory: for ``swift``, seen by all hosts of the site.
        throttles: of transfers and operations by name, for ``swift``; they count on this host.
        allow_files: directories of which ``file://`` may name files, beside that of the job.
    """

    mode: StagingMode = StagingMode.PROVIDER
    site_directory: str = ""
    throttles: Mapping[str, Limit] = field(factory=dict)
    allow_files: tuple[str, ...] = ()


def staging_mode(said: str) -> StagingMode:
    """Return who stages, by its name.

    Raises:
        ValueError: there is no such way; the message is one line for people.
    """
    modes = [str(mode) for mode in StagingMode]
    if said not in modes:
        near = did_you_mean(said, modes)
        raise ValueError(f"there is no staging {said!r}{near}; there are: {', '.join(modes)}")
    return StagingMode(said)


def staging_settings(options: Mapping[str, str]) -> StagingSettings:
    """Return what the options of a host say about staging.

    Raises:
        ValueError: they cannot be used; the message is one line for people.
    """
    mode = staging_mode(options.get("staging", StagingMode.PROVIDER))
    directory = options.get("site_directory", "")
    throttles = parse_throttles({name: options[name] for name in FILE_THROTTLES if name in options})
    if mode is StagingMode.SWIFT and not os.path.isabs(directory):
        raise ValueError(
            "staging=swift needs site_directory=DIR, the whole path of a directory that all hosts see"
        )
    if mode is not StagingMode.SWIFT and (directory or throttles):
        name = "site_directory" if directory else min(throttles)
        raise ValueError(f"{name} is for staging=swift, not for staging={mode}")
    allowed = tuple(filter(None, options.get("allow_files", "").split(os.pathsep)))
    if not all(map(os.path.isabs, allowed)):
        raise ValueError(
            f"allow_files={options['allow_files']}: name whole paths of directories, with : between"
        )
    return StagingSettings(mode, directory, throttles, allowed)


def block_options(mode: str, *throttles: Mapping[str, Limit]) -> dict[str, str]:
    """Return what the hosts of a block are told of staging.

    Args:
        mode: that of the site.
        throttles: of all sites together, and of the site; what is not for files is left out.
    """
    if mode == StagingMode.PROVIDER:
        return {}
    options = {"staging": mode}
    for limits in throttles if mode == StagingMode.SWIFT else ():
        options |= {
            name: OFF if limit is None else str(limit)
            for name, limit in limits.items()
            if name in FILE_THROTTLES
        }
    return options


def removal_script(*directories: str) -> str:
    """Return the script of the batch job that removes a site directory, and that of the script itself."""
    return f"#!/bin/sh\nexec rm -rf -- {shlex.join(directories)}\n"
