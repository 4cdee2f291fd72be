"""States of a launcher, and the ways between them."""

from __future__ import annotations

from enum import StrEnum


class LauncherState(StrEnum):
    """Where a launcher is."""

    IDLE = "idle"
    """It has not begun; its first tick lets it begin."""
    SUBMITTING = "submitting"
    """The engine was given the server job, and has not said clearly that it has it."""
    AWAITING = "awaiting"
    """The engine has the server job, and the server is not connected."""
    SERVING = "serving"
    """The server is connected, and has clients submitted and cancelled."""
    RESTARTING = "restarting"
    """The next server job waits for a place, which jobs of the last server hold that are being cancelled."""
    STOPPING = "stopping"
    """All jobs are cancelled, and the engine has not said of all that they are gone."""
    STOPPED = "stopped"
    """Nothing follows."""

    @property
    def has_server(self) -> bool:
        """Whether there is a server job, which is wanted."""
        return self in (LauncherState.SUBMITTING, LauncherState.AWAITING, LauncherState.SERVING)

    @property
    def is_over(self) -> bool:
        """Whether nothing is submitted any more."""
        return self in (LauncherState.STOPPING, LauncherState.STOPPED)


TRANSITIONS: dict[LauncherState, frozenset[LauncherState]] = {
    LauncherState.IDLE: frozenset({LauncherState.SUBMITTING, LauncherState.STOPPING}),
    LauncherState.SUBMITTING: frozenset(
        {LauncherState.AWAITING, LauncherState.SERVING, LauncherState.RESTARTING, LauncherState.STOPPING}
    ),
    LauncherState.AWAITING: frozenset(
        {LauncherState.SERVING, LauncherState.RESTARTING, LauncherState.STOPPING}
    ),
    LauncherState.SERVING: frozenset(
        {LauncherState.AWAITING, LauncherState.RESTARTING, LauncherState.STOPPING}
    ),
    LauncherState.RESTARTING: frozenset({LauncherState.SUBMITTING, LauncherState.STOPPING}),
    LauncherState.STOPPING: frozenset({LauncherState.STOPPED}),
    LauncherState.STOPPED: frozenset(),
}
"""Where a launcher may go from where it is."""

UNCONNECTED_MAX = 3
"""So many servers in a row that end without having connected stop the study."""

RETURN_S = 120.0
"""So long a launcher that was resumed waits for its server to come back."""
