"""Writes to a memory layer: data is made, and its bytes are changed, on all holders.

A put is written aside on every holder, then applied on all of them, in turns. A holder that fails to apply it
is no holder any more, so that no later read finds the old bytes; one that came meanwhile goes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.machine import MachineBase, handles
from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import DataEntry, DataTurn, Directory, Operation, Part, located, place, visible
from gspc_trio.iml.errors import (
    BadLayout,
    DataLost,
    DuplicateData,
    ImlError,
    UnknownData,
    UnknownHost,
    WrongJob,
    error_of,
)
from gspc_trio.iml.events import LayerAction
from gspc_trio.iml.layout import Layout, check_range, check_size, part_sizes, spans
from gspc_trio.iml.messages import DataState

BLOCKS_MAX = 1 << 20
"""Most blocks of some data: each operation on it looks at all that it touches."""


class Writer(Struct, frozen=True):
    """Who is to make data.

    Attributes:
        request: what for.
        client: who asks.
        ask: what the answer is for.
        write_token: shows the servers that they may write it.
    """

    request: x.Alloc
    client: int
    ask: int
    write_token: str


class Writes(MachineBase[x.LayerRequest, LayerAction]):
    """The part of a coordinator that makes and changes data.

    Args:
        directory: of all data; it gathers the actions, too.

    Attributes:
        client: who asks.
        ask: what the answer is for.
        write_token: to be told to who asks if they are to write something.
    """

    noun = "a memory layer"

    def __init__(self, directory: Directory) -> None:
        super().__init__()
        self.client = self.ask = 0
        self.write_token = ""
        self._directory = directory

    def make(self, writer: Writer, first: int | None) -> None:
        """Make data on every host of its layout, or on none.

        Args:
            writer: who asks, and what for.
            first: the rank at which it is to begin if the layout names no hosts.

        Raises:
            ImlError: it cannot be; nothing was changed.
        """
        directory, request, client, ask = self._directory, writer.request, writer.client, writer.ask
        write_token = writer.write_token if request.writing else ""
        check_size(request.size_bytes)
        before = directory.data.get(request.data_id) if request.data_id else None
        if before is not None and (before.state is not DataState.LOST or before.job != request.job):
            raise DuplicateData(f"there is data {request.data_id} already")
        layout = request.layout
        if layout.block_bytes > 0 and request.size_bytes // layout.block_bytes > BLOCKS_MAX:
            raise BadLayout(
                f"{request.size_bytes} bytes in blocks of {layout.block_bytes}: more than {BLOCKS_MAX} blocks"
            )
        if request.is_there:
            self._check_there(request, client)
        ranks = place(directory.servers, layout, request.size_bytes, first, directory.vacated)
        hosts = len(layout.hosts or directory.servers)
        sizes = part_sizes(request.size_bytes, layout.block_bytes, hosts)
        parts = {number: Part(size) for number, size in enumerate(sizes)}
        data_id = request.data_id or directory.new_id()
        name = request.name or (before.published if before is not None else "")
        if before is not None:
            directory.remove(before)
        data = DataEntry(data_id, request.job, request.size_bytes, layout.block_bytes, parts, client, name)
        if before is not None:
            data.again, data.why = True, before.why

        def made(operation: Operation) -> None:
            if self._was_made(data, operation, ask):
                data.state = DataState.WRITING if request.writing else DataState.READY
                data.client = client if request.writing else 0
                if not request.writing:
                    directory.note_ready(data)
                found = located(data, directory.servers)
                directory.reply(ask, replace(found, write_token=write_token))

        if name:
            directory.names[name] = data_id
        if request.is_there:
            directory.data[data_id] = data
            made(Operation(made, done=[(ranks[0][0], 0)]))
        else:
            self._create(data, ranks, made, request.writing, write_token)

    def _check_there(self, request: x.Alloc, client: int) -> None:
        """See that a server speaks, of what it writes in one part of its own."""
        rank = self._directory.rank_at(client)
        if rank is None:
            raise UnknownHost("only a memory server knows what it has made")
        host = self._directory.servers[rank].entry.host
        if request.layout != Layout((host,)) or not (request.writing and request.data_id):
            raise BadLayout(f"host {host} has made something else than a part of its own with an id")

    @handles(x.BeginPut)
    def _begin_put(self, request: x.BeginPut) -> None:
        """Make room for the new bytes of a range wherever it lies."""
        directory, ask, write_token = self._directory, self.ask, self.write_token
        data = visible(directory.data.get(request.data_id), request.data_id, request.job)
        check_range(data.data_id, data.size_bytes, request.offset, request.size_bytes)
        touched = spans(data.block_bytes, len(data.parts), request.offset, request.size_bytes)
        parts = {number: Part(size) for number, (_, size) in touched.items()}
        ranks = [list(data.parts[number].holders) for number in parts]
        staging = DataEntry(directory.new_id(), data.job, request.size_bytes, data.block_bytes, parts)
        staging.client = self.client
        staging.target = data.data_id
        staging.touched = {number: offset for number, (offset, _) in touched.items()}

        def made(operation: Operation) -> None:
            if self._was_made(staging, operation, ask):
                staging.state = DataState.WRITING
                found = replace(located(staging, directory.servers), write_token=write_token)
                directory.reply(ask, x.PutBegun(staging.data_id, found))

        self._create(staging, ranks, made, True, write_token)

    @handles(x.CommitData)
    def _commit(self, request: x.CommitData) -> None:
        """Let what was written be seen."""
        directory, ask = self._directory, self.ask
        data = directory.data.get(request.data_id)
        if (
            data is None
            or not (data.state is DataState.WRITING or data.state is DataState.LOST)
            or data.turns
        ):
            raise UnknownData(f"nothing is being written under {request.data_id}")
        if data.client and data.client != self.client:
            raise WrongJob(f"{request.data_id} is being written by another client")
        self._leave_out(data, request.without)
        if data.target:
            data.client = 0
            target = directory.data.get(data.target)
            if target is None:
                self._end_put(ask, data, UnknownData(f"data {data.target} was freed during the put"))
            else:
                directory.take_turn(target, lambda turn: self._apply(ask, data, target, turn))
            return
        if data.state is DataState.LOST:
            raise DataLost(f"what was written was lost: {data.why}")
        data.state, data.client = DataState.READY, 0
        for number, part in data.parts.items():
            for rank in part.holders:
                directory.tell(rank, x.SealPart(data.data_id, number))
        directory.note_ready(data)
        directory.reply(ask, x.ImlDone())

    def _leave_out(self, data: DataEntry, ranks: Iterable[int]) -> None:
        """These holders could not be reached and do not have all that was written."""
        directory = self._directory
        for rank in ranks:
            for number, part in data.parts.items():
                if rank in part.holders:
                    directory.remove_holder(data, number, rank)
                    directory.tell(rank, x.DropPart(data.data_id, number))
        directory.note_loss(data, "its hosts could not be reached to write it")

    @handles(x.AbortData)
    def _abort(self, request: x.AbortData) -> None:
        """Drop what this client is writing."""
        data = self._directory.data.get(request.data_id)
        if data is not None and data.client == self.client:
            self._directory.give_up(data)
        self._directory.reply(self.ask, x.ImlDone())

    # Making

    def _create(
        self,
        data: DataEntry,
        ranks: list[list[int]],
        made: Callable[[Operation], None],
        writing: bool,
        write_token: str,
    ) -> None:
        directory = self._directory
        directory.data[data.data_id] = data
        operation = Operation(made)
        for (number, part), holders in zip(data.parts.items(), ranks, strict=True):
            for rank in holders:
                directory.call(
                    operation,
                    rank,
                    number,
                    x.CreatePart(data.data_id, number, part.size_bytes, writing, write_token=write_token),
                )

    def _was_made(self, data: DataEntry, operation: Operation, ask: int) -> bool:
        """Take note of the parts that were made; refuse if not all were, or nobody wants them any more."""
        directory = self._directory
        for rank, number in operation.done:
            if data.state is DataState.GONE:
                directory.tell(rank, x.DropPart(data.data_id, number))
            elif rank in directory.servers:
                directory.add_holder(data, number, rank, cached=False)
            else:
                operation.failed[rank, number] = ("DataLost", "its host is gone")
        if data.state is DataState.GONE:
            directory.refuse(ask, UnknownData(f"{data.data_id} was dropped while it was made"))
            return False
        if operation.failed:
            directory.give_up(data)
            directory.refuse(ask, _first_failure(operation))
            return False
        return True

    # Putting

    def _apply(self, ask: int, staging: DataEntry, target: DataEntry, turn: DataTurn) -> None:
        directory = self._directory
        problem = _why_not(staging, target)
        if problem is not None:
            self._end_put(ask, staging, problem)
            directory.end_turn(target, turn)
            return
        operation = Operation(lambda done: self._applied(ask, staging, target, turn, done))
        for number, part in staging.parts.items():
            for rank in list(target.parts[number].holders):
                if rank in part.holders:
                    message = x.ApplyPut(target.data_id, number, staging.data_id, staging.touched[number])
                    directory.call(operation, rank, number, message)
                else:  # it came after the put had begun, without the new bytes
                    directory.remove_holder(target, number, rank)
                    directory.call(operation, rank, number, x.DropPart(target.data_id, number))

    def _applied(
        self, ask: int, staging: DataEntry, target: DataEntry, turn: DataTurn, operation: Operation
    ) -> None:
        directory = self._directory
        for (rank, number), (_, message) in operation.failed.items():
            if rank in target.parts[number].holders:
                directory.remove_holder(target, number, rank)
                directory.tell(rank, x.DropPart(target.data_id, number))
                directory.note_loss(target, message)
        error: ImlError | None = None
        if target.state is DataState.LOST:
            error = DataLost(f"data {target.data_id} was lost: {target.why}")
        elif target.state is not DataState.READY:
            error = UnknownData(f"data {target.data_id} was freed during the put")
        else:
            directory.note_loss(target, "")
        self._end_put(ask, staging, error)
        directory.end_turn(target, turn)

    def _end_put(self, ask: int, staging: DataEntry, error: ImlError | None) -> None:
        self._directory.discard(staging)
        if error is not None:
            self._directory.refuse(ask, error)
        else:
            self._directory.reply(ask, x.ImlDone())


def _why_not(staging: DataEntry, target: DataEntry) -> ImlError | None:
    """Return why a put cannot be applied now, or None."""
    if target.state is DataState.LOST:
        return DataLost(f"data {target.data_id} was lost: {target.why}")
    if target.state is not DataState.READY:
        return UnknownData(f"data {target.data_id} was freed during the put")
    again = f"the new bytes for {target.data_id} were lost, and nothing was changed: put again"
    if staging.state is not DataState.WRITING:
        return DataLost(again)
    for number, part in staging.parts.items():
        if not part.holders.keys() & target.parts[number].holders.keys():
            return DataLost(again)
    return None


def _first_failure(operation: Operation) -> ImlError:
    return error_of(*next(iter(operation.failed.values())))
