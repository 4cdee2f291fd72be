"""What monitoring says of hosts: which of them a run-time system is to use."""

from __future__ import annotations

from gspc_trio.components.rts.events import HostAvoided, HostUsed
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.core.task import DataUse


class HostUse:
    """Has a run-time system use hosts or not.

    Args:
        service: the run-time system.
    """

    def __init__(self, service: RtsService) -> None:
        self._service = service

    def avoid(self, host: str, reason: str, *, evacuate: bool, uses: tuple[DataUse, ...] = ()) -> None:
        """Give nothing new to a host, or nothing that uses data so; one that may fail is left."""
        self._service.inbox.put(HostAvoided(host, reason, evacuate, uses))

    def use(self, host: str) -> None:
        """Use it again."""
        self._service.inbox.put(HostUsed(host))
