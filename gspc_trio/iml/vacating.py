"""Hosts whose memory is not to be relied on: what lies there alone is copied to others (ASP-9).

The copies that are there stay, and may be read. Data that is made there later is copied as soon as it is
complete. New data whose place nobody has named goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import DataEntry, DataTurn, Directory, Operation, Part
from gspc_trio.iml.messages import DataState


class Vacating:
    """The part of a coordinator that has data copied away from hosts.

    Args:
        directory: of all data.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def begin(self, ask: int, client: int, host: str) -> None:
        """Have all data that lies on a host alone copied to others; then answer.

        Args:
            ask: is answered.
            client: has asked for it; when it goes, the host is as any other again.
            host: which one.
        """
        directory = self._directory
        directory.vacated.setdefault(host, set()).add(client)
        waiting = [data for data in directory.data.values() if self._is_at_risk(data)]
        told = _Told(len(waiting), lambda told: directory.reply(ask, x.Vacated(told.copied, told.left)))
        for data in waiting:
            self._bring_away(data, told)
        if not waiting:
            told.end_if_done()

    def end(self, ask: int, client: int, host: str) -> None:
        """The host is as any other again, as far as this client is concerned."""
        self._forget(client, host)
        self._directory.reply(ask, x.Vacated())

    def client_gone(self, client: int) -> None:
        """Forget what a client has asked for."""
        for host in list(self._directory.vacated):
            self._forget(client, host)

    def follow(self) -> None:
        """Copy what has been completed on such hosts since the last call."""
        for data in self._directory.take_ready():
            if self._is_at_risk(data):
                self._bring_away(data, _Told(1, lambda _: None))

    def _forget(self, client: int, host: str) -> None:
        clients = self._directory.vacated.get(host, set())
        clients.discard(client)
        if not clients:
            self._directory.vacated.pop(host, None)

    def _is_at_risk(self, data: DataEntry) -> bool:
        is_there = data.state is DataState.READY and not data.target
        return is_there and any(not self._is_safe(part) for part in data.parts.values())

    def _is_safe(self, part: Part) -> bool:
        """Whether a host that is not vacated holds it for good."""
        safe = self._safe_ranks()
        return any(rank in safe and not cached for rank, cached in part.holders.items())

    def _safe_ranks(self) -> list[int]:
        """Return the ranks of hosts that are not vacated, those with most room first."""
        directory = self._directory
        servers = directory.servers
        safe = [rank for rank, server in servers.items() if server.entry.host not in directory.vacated]
        return sorted(safe, key=lambda rank: (-servers[rank].free_bytes, rank))

    def _bring_away(self, data: DataEntry, told: _Told) -> None:
        self._directory.take_turn(data, lambda turn: self._copy(data, told, {}, turn))

    def _copy(self, data: DataEntry, told: _Told, tried: dict[int, set[int]], turn: DataTurn) -> None:
        """Copy the parts of some data that are not safe, each to a host that was not tried yet."""
        directory = self._directory
        operation = Operation(lambda done: self._copied(data, told, tried, turn, done))
        if data.state is DataState.READY:
            safe = self._safe_ranks()
            for number, part in data.parts.items():
                if self._is_safe(part):
                    continue
                cached = next((rank for rank in safe if rank in part.holders), None)
                if cached is not None:
                    part.holders[cached] = False
                    directory.tell(cached, x.KeepPart(data.data_id, number))
                    continue
                target = next((rank for rank in safe if rank not in tried.get(number, ())), None)
                if target is not None:
                    tried.setdefault(number, set()).add(target)
                    source = directory.servers[next(iter(part.holders))].entry
                    copy = x.CopyPart(data.data_id, number, part.size_bytes, source, False)
                    directory.call(operation, target, number, copy)
        directory.finish_if_done(operation)

    def _copied(
        self,
        data: DataEntry,
        told: _Told,
        tried: dict[int, set[int]],
        turn: DataTurn,
        operation: Operation,
    ) -> None:
        directory = self._directory
        for rank, number in operation.done:
            if data.state is DataState.READY and rank in directory.servers:
                directory.add_holder(data, number, rank, cached=False)
            else:
                directory.tell(rank, x.DropPart(data.data_id, number))
        if operation.failed and self._is_at_risk(data):
            self._copy(data, told, tried, turn)
            return
        directory.end_turn(data, turn)
        told.note(self._is_at_risk(data))


class _Told:
    """Counts data until all of it was copied, or could not be.

    Args:
        waiting: how much data there is.
        end: called when nothing is left to wait for.
    """

    def __init__(self, waiting: int, end: Callable[[_Told], None]) -> None:
        self.copied = self.left = 0
        self._waiting = waiting
        self._end = end

    def note(self, is_left: bool) -> None:
        """Some data was copied, is gone, or could not be copied."""
        self._waiting -= 1
        self.left += is_left
        self.copied += not is_left
        self.end_if_done()

    def end_if_done(self) -> None:
        """Call who waits, if nothing is left to wait for."""
        if not self._waiting:
            self._end(self)
