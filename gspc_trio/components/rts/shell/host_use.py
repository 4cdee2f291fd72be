"""What monitoring says of hosts: which of them a run-time system is to use."""

from __future__ import annotations

from gspc_trio.components.rts.events import HostAvoided, HostUsed
from gspc_trio.components.rts.shell.service import RtsService


class HostUse:
    """Has a run-time system use hosts or not.

    Args:
        service: the run-time system.
    """

    def __init__(self, service: RtsService) -> None:
        self._service = service

    def avoid(self, host: str, reason: str, *, evacuate: bool) -> None:
        """Give nothing new to a host; if it may fail, bring away what is there."""
        self._service.inbox.put(HostAvoided(host, reason, evacuate))

    def use(self, host: str) -> None:
        """Use it again."""
        self._service.inbox.put(HostUsed(host))
