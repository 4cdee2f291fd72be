"""The strategies of batch systems: a block of RIFs is a batch job, with one RIF on each of its nodes (RTS-1).

The script of the job has no secrets. The ticket with which the RIFs enrol lies in a file that only the user
can read, in a directory that both this host and the nodes see, or the batch system carries it. It is
removed when the job is over, so that a job which nobody waits for any more ends at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from attrs import evolve
from msgspec.structs import replace

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    HopelessRequest,
    Provider,
    QueryFailed,
    request_of,
)
from gspc_trio.components.provision.blocks import (
    BlockEnrolments,
    BlockMoved,
    BlockOver,
    EnrolmentFile,
    SavedBlock,
)
from gspc_trio.components.provision.shell.batch_host import BatchHost, Folder
from gspc_trio.components.provision.shell.block_folders import SHARED_FOLDER
from gspc_trio.components.provision.shell.commands import COMMAND_TIMEOUT_S, SiteDirectories
from gspc_trio.components.provision.shell.helper import HelperHost
from gspc_trio.components.provision.shell.strategies import (
    RIF_OPTIONS,
    check_reachable,
    order_line,
    remote_command,
)
from gspc_trio.components.provision.site import (
    AskJob,
    BatchSite,
    CancelAnswered,
    CancelJob,
    JobAdopted,
    JobAnswered,
    JobContact,
    JobForgotten,
    JobMoved,
    JobOver,
    JobRuns,
    JobsListed,
    JobUnwanted,
    JobWanted,
    ListQueue,
    QueryTimes,
    SiteAction,
    SiteEvent,
    SubmitAnswered,
    SubmitJob,
    SubmitRefused,
)
from gspc_trio.components.provision.strategy import (
    OutOfSight,
    RifOrder,
    StartedAgain,
    StrategyError,
    check_options,
)
from gspc_trio.core.machine import Performer, performs
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.protocol.plain import to_json

log: logging.Logger = logging.getLogger(__name__)

BATCH_OPTIONS = ("queue", "account", "arguments", "shared", "python", "via")
"""Options of these strategies, besides those of the RIF."""

STOP_S = 8.0
"""How long to wait until a job that was cancelled is gone; then it is named in the log, and left."""

TICKET_BYTES = 32

SAID_MAX = 300
"""So much of what a command has said is told to people, where it is not clear what it has done."""

ENROL_FILE, OUTPUT_FILE = "enrol", "output"


class _Node:
    """One node of a block: the order for its RIF, and whether that is over.

    Attributes:
        order: for its RIF.
        over: set when nothing more is heard of that RIF here.
        again: why another process has come in its place, or "".
    """

    def __init__(self, order: RifOrder) -> None:
        self.order = order
        self.over = trio.Event()
        self.again = ""


class _Block:
    """One block; the side of it to which the enrolment service speaks.

    Attributes:
        name, job_id: what we and the batch system call its job.
        request: what is submitted; None until its files are written.
        nodes: those for which there is an order.
        over: how it is over with its job, when ``gone`` is set; ``failure``: why there is none.
        before: what an earlier run-time system knew of it, None if it had none.
        is_closing: nobody wants it any more.
    """

    def __init__(
        self, strategy: BatchStrategy, order: RifOrder, wanted: BatchRequest, before: SavedBlock | None
    ) -> None:
        assert order.enrolments is not None, "nothing at which the RIFs of a block enrol"
        self._strategy = strategy
        self.enrolments: BlockEnrolments = order.enrolments
        self.first = order
        self.block = order.block
        self.count = order.nodes
        self.before = before
        self.wanted = wanted
        self.name = wanted.name if self.before is None else self.before.name
        self.job_id = "" if self.before is None else self.before.job_id
        self.ticket = (
            strategy.host.random_bytes(TICKET_BYTES)
            if self.before is None
            else bytes.fromhex(self.before.ticket)
        )
        self.folder: Folder | None = None
        self.request: BatchRequest | None = None
        self.nodes: dict[int, _Node] = {}
        self.last: list[str] = []
        self.over: JobOver | None = None
        self.failure = ""
        self.had_rifs = False
        self.is_closing = False
        self.has_ended = trio.Event()
        self.gone = trio.Event()

    def order_for(self, node: int) -> str | None:
        """See BlockSide."""
        there = self.nodes.get(node)
        if there is None:
            return None
        there.order.ordered()
        return order_line(there.order).decode()

    def end_node(self, node: int, incarnation: int, reason: str) -> None:
        """See BlockSide."""
        there = self.nodes.get(node)
        if there is not None and there.order.incarnation == incarnation:
            there.again = reason
            there.over.set()

    def job_seen(self, job_id: str) -> None:
        """See BlockSide."""
        self._strategy.put(JobRuns(self.name, job_id))

    def connected_changed(self, count: int) -> None:
        """See BlockSide."""
        self.had_rifs = self.had_rifs or count > 0
        self._strategy.put(JobContact(self.name, count))

    def stray_canceller(self) -> Callable[[str], None]:
        """See BlockSide."""
        enrolments, strategy, block, name = self.enrolments, self._strategy, self.block, self.name

        def cancel(job_id: str) -> None:
            log.warning("the batch job %s of the block %s is not wanted: it is cancelled", job_id, block)
            enrolments.start_soon(strategy.cancel_stray, job_id, name)

        return cancel

    def save(self, restarts: int) -> SavedBlock:
        """See BlockSide."""
        folder = self.folder.path if self.folder is not None else ""
        restarts = max(restarts, 0 if self.before is None else self.before.restarts)
        return SavedBlock(self.block, self.count, self.name, self.job_id, self.ticket.hex(), folder, restarts)

    def finish(self) -> None:
        """Tell those who wait that it is over."""
        for node in self.nodes.values():
            node.order.said.extend(self.last)
            node.over.set()
        self.gone.set()


class BatchStrategy(Performer[SiteAction]):
    """Starts blocks of RIFs as batch jobs, which end with their run-time system.

    Options: ``queue`` (partition) and ``account``; ``arguments``, more for the command that submits;
    ``shared``, a directory that the nodes see, too (by default ``~/.gspc-trio``); ``python``, the interpreter
    on the nodes; ``via``, which counts where the provider is chosen; those of the RIF, of which the batch
    system gets ``time``, too; those of the provider.

    Args:
        provider: knows the batch system.
        times: when the batch system is asked.
        host: where its commands run, this host if it is not given.
    """

    come_up_s: float = math.inf

    def __init__(
        self, provider: Provider, times: QueryTimes | None = None, host: BatchHost | None = None
    ) -> None:
        self.host: BatchHost | HelperHost = host or (
            HelperHost(provider.helper) if provider.helper else BatchHost()
        )
        self._provider = provider
        self._inbox: Inbox[SiteEvent] = Inbox()
        self._site = BatchSite(provider.name, times or QueryTimes())
        self._blocks: dict[str, _Block] = {}
        self._by_name: dict[str, _Block] = {}
        self._served: trio.CancelScope | None = None
        self._turn = trio.Lock()
        self._sites = SiteDirectories(provider, self.host.command)
        self._fresh: list[_Block] = []
        self._nursery: trio.Nursery | None = None

    def put(self, event: SiteEvent) -> None:
        """Take an event for the site."""
        self._inbox.put(event)

    async def run(self, order: RifOrder) -> str:
        """Have the block of an order submitted if it is not there, and wait until its RIF is over.

        When the last of the orders of a block is given up, its job is cancelled.
        """
        check_options(order, *BATCH_OPTIONS, *RIF_OPTIONS, *self._provider.options)
        if not self._provider.is_here:
            check_reachable(order)
        if not (order.cores or order.taken):
            order = replace(order, cores=await self._cores_of_a_node(order))
        if order.options.get("staging") != "swift" or "site_directory" in order.options:
            return await self._run_order(order)
        parent = order.options.get("shared") or str(Path.home() / SHARED_FOLDER)
        try:
            wanted = request_of("", 1, order.options)
        except ValueError as error:
            raise StrategyError(str(error)) from error
        own = {name: order.options[name] for name in self._provider.options if name in order.options}
        async with self._sites.held(parent, evolve(wanted, options=own)) as directory:
            options = {**order.options, "site_directory": directory}
            return await self._run_order(replace(order, options=options))

    async def _cores_of_a_node(self, order: RifOrder) -> int:
        """Return the cores of a node of a cluster that says so, where the user does not; else 0."""
        assert order.enrolments is not None, "nothing at which the RIFs of a block enrol"
        try:
            if self._provider.size() is None:
                return 0
            self.host.begin(order.enrolments.start_soon)
            return (await self.size())[1]
        except BadRequest as error:
            raise StrategyError(str(error)) from error
        except (QueryFailed, OSError) as error:
            raise StrategyError(f"{self._provider.name}: {error}") from error

    async def _run_order(self, order: RifOrder) -> str:
        """Have a block submitted whose site directory is known; see :meth:`run`."""
        block = await self._block_of(order)
        node = block.nodes[order.node] = _Node(order)
        block.enrolments.hand_in(block.block, order.node, order.incarnation, order.taken)
        try:
            await node.over.wait()
        finally:
            if not node.over.is_set():
                block.enrolments.take_back(block.block, order.node, order.incarnation)
            del block.nodes[order.node]
            if not node.again and not block.nodes and not block.has_ended.is_set():
                await self._give_up(block)
        if node.again:
            raise StartedAgain(node.again)
        if block.over is None or block.failure:
            raise StrategyError(block.failure or "it was ended")
        if block.over.how in ("refused", "hopeless"):
            raise StrategyError(block.over.reason)
        if block.over.how == "missing" and order.grace_s:
            raise OutOfSight(block.over.reason)
        return block.over.reason

    async def _block_of(self, order: RifOrder) -> _Block:
        """Return the block of an order, which is opened if it is not there."""
        while order.block in self._blocks and self._blocks[order.block].is_closing:
            await self._blocks[order.block].gone.wait()
        block = self._blocks.get(order.block)
        if block is not None:
            return block
        words = f"{order.block}-{self.host.random_bytes(4).hex()}"
        name = "gspc-" + "".join(each if each.isascii() and each.isalnum() else "-" for each in words)
        try:
            wanted = request_of(name, order.cores, order.options)
        except ValueError as error:
            raise StrategyError(str(error)) from error
        before = order.enrolments.saved(order.block) if order.enrolments is not None else None
        if order.taken and before is None:
            raise OutOfSight("nobody knows its batch job any more")
        own = {key: value for key, value in order.options.items() if key in self._provider.options}
        block = _Block(self, order, evolve(wanted, nodes=order.nodes, options=own), before)
        self._blocks[block.block] = self._by_name[block.name] = block
        restarts = 0 if block.before is None else block.before.restarts
        block.enrolments.open_block(block, block.block, block.count, block.ticket, block.job_id, restarts)
        if self._nursery is not None:
            self._nursery.start_soon(self._keep, block)
        else:
            self._fresh.append(block)
            if self._served is None:
                self._served = trio.CancelScope(shield=True)
                self.host.begin(block.enrolments.start_soon)
                block.enrolments.start_soon(self._serve, self._served)
        return block

    async def _give_up(self, block: _Block) -> None:
        """Nobody wants a block any more: cancel its job, and see for a while that it is gone."""
        block.is_closing = True
        with trio.move_on_after(STOP_S, shield=True):
            self._inbox.put(JobUnwanted(block.name))
            await block.gone.wait()
        if not block.gone.is_set():
            self._inbox.put(JobForgotten(block.name))
            log.warning(
                "%s has not said within %g s that the job %s is gone: look for it, and cancel it by hand",
                self._provider.name, STOP_S, block.name,
            )  # fmt: skip
            block.failure = "it was ended"
            block.has_ended.set()

    # One block ----------------------------------------------------------------------------------------------

    async def _serve(self, scope: trio.CancelScope) -> None:
        """Drive the site, and run its commands, for as long as there is a block."""
        with scope, self.host.in_use():
            async with self._turn, trio.open_nursery() as nursery:
                self._nursery = nursery
                for block in self._fresh:
                    nursery.start_soon(self._keep, block)
                self._fresh.clear()
                await drive(self._site, self._inbox, self)

    def _start(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        assert self._nursery is not None, "nobody drives the site"
        self._nursery.start_soon(task, *args)

    async def _keep(self, block: _Block) -> None:
        """Keep one block from its first file to its last."""
        try:
            await self._prepare(block)
            if block.is_closing and block.before is None:
                block.failure = "it was ended"
            elif block.before is not None:
                self._inbox.put(JobAdopted(block.name, block.job_id))
            else:
                self._inbox.put(JobWanted(block.name))
            if not block.failure:
                if block.is_closing:
                    self._inbox.put(JobUnwanted(block.name))
                await block.has_ended.wait()
        except (OSError, BadRequest, StrategyError) as error:
            block.failure = str(error)
        finally:
            block.has_ended.set()
            block.enrolments.close_block(block.block)
            if self._provider.secret_path and block.request is not None:
                await self.cancel_stray("", block.name)  # it keeps the secret else
            if block.folder is not None:
                block.last = await self.host.in_thread(block.folder.last_lines, OUTPUT_FILE)
                await self.host.in_thread(block.folder.remove)
            del self._blocks[block.block], self._by_name[block.name]
            over = block.over or JobOver(block.name, "refused", block.failure)
            had = block.had_rifs, block.is_closing
            block.enrolments.tell(BlockOver(block.block, over.how, over.reason, *had, tuple(block.last)))
            block.finish()
            if not self._blocks and self._served is not None:
                self._served.cancel()
                self._served = self._nursery = None

    async def _prepare(self, block: _Block) -> None:
        """Write the files of a block; those of one of before are there, but its run-time system has moved."""
        first, provider, before = block.first, self._provider, block.before
        shared, keep = first.options.get("shared", ""), first.grace_s > 0
        try:
            if before is None:
                folder = await self.host.in_thread(self.host.make_folder, shared, keep)
            else:
                folder = await self.host.in_thread(self.host.open_folder, before.folder)
        except FileNotFoundError:
            if before is None:
                raise
            return  # those that run go on
        block.folder = folder
        credentials = block.enrolments.issue(f"block {block.block}")
        told = to_json(EnrolmentFile(first.rts_address("ws:"), block.block, block.ticket, credentials))
        in_thread = self.host.in_thread
        path = provider.secret_path or await in_thread(lambda: folder.write(ENROL_FILE, told.encode()))
        if before is not None:
            return
        request = evolve(
            block.wanted,
            output=f"{folder.path}/{OUTPUT_FILE}",
            folder=folder.path,
            secret=told if provider.secret_path else "",
        )
        script = block_script(provider, request, block.block, first.options, path)
        block.request = evolve(request, script=script)
        await self.host.in_thread(lambda: folder.write("script", script.encode()))

    # What the site decides ----------------------------------------------------------------------------------

    @performs(SubmitJob)
    def _submit_job(self, action: SubmitJob) -> None:
        self._start(self._submit, action.name)

    @performs(ListQueue)
    def _list_jobs(self, _action: ListQueue) -> None:
        self._start(self._list)

    @performs(AskJob)
    def _ask_job(self, action: AskJob) -> None:
        self._start(self._ask, action)

    @performs(CancelJob)
    def _cancel_job(self, action: CancelJob) -> None:
        self._start(self._cancel, action)

    @performs(JobMoved)
    def _job_moved(self, action: JobMoved) -> None:
        log.info("%s: %s", action.name, action.text)
        block = self._by_name.get(action.name)
        if block is None:
            return
        if action.job_id and action.job_id != block.job_id:
            block.job_id = action.job_id
            block.enrolments.job_known(block.block, action.job_id)
        for node in block.nodes.values():
            node.order.tell(action.text)
        state = "unclear" if action.state is None else str(action.state)
        block.enrolments.tell(
            BlockMoved(block.block, state, action.job_id, action.reason, action.text, action.is_hopeless)
        )

    @performs(JobOver)
    def _job_over(self, action: JobOver) -> None:
        block = self._by_name.get(action.name)
        if block is not None:
            block.over = action
            block.has_ended.set()

    # Commands -----------------------------------------------------------------------------------------------

    async def _submit(self, name: str) -> None:
        request = self._by_name[name].request
        assert request is not None, "it was not prepared"
        event: SiteEvent = SubmitAnswered(name, None)
        program = ""
        try:
            command = self._provider.submit(request)
            program = command[0]
            result = await self.host.command(command, self._provider.submit_input(request))
            if result is None:
                event = SubmitAnswered(name, None, f"{program} has not ended within {COMMAND_TIMEOUT_S:g} s")
            else:
                job_id = self._provider.submitted(result)
                event = SubmitAnswered(name, job_id, "" if job_id else result.words[:SAID_MAX])
        except BadRequest as error:
            event = SubmitRefused(name, str(error), isinstance(error, HopelessRequest))
        except OSError as error:
            event = SubmitRefused(name, f"cannot run {program} here: {error.strerror}")
        finally:
            self._inbox.put(event)

    async def _list(self) -> None:
        answer: tuple[tuple[BatchJob, ...] | None, str] = None, ""
        try:
            answer = await self._query("")
        finally:
            self._inbox.put(JobsListed(*answer))

    async def _ask(self, action: AskJob) -> None:
        jobs: tuple[BatchJob, ...] | None = None
        try:
            jobs, _ = await self._query(action.job_id)
        finally:
            self._inbox.put(JobAnswered(action.name, jobs))

    async def _cancel(self, action: CancelJob) -> None:
        try:
            await self.host.command(self._provider.cancel(action.job_id, action.name))
        except OSError as error:
            log.warning("cannot cancel %s: %s", action.name, error)
        finally:
            self._inbox.put(CancelAnswered(action.name))

    async def cancel_stray(self, job_id: str, name: str) -> None:
        """Cancel a job that nobody waits for any more."""
        try:
            await self.host.command(self._provider.cancel(job_id, name))
        except OSError as error:
            log.warning("cannot cancel %s: %s", job_id, error)

    async def size(self) -> tuple[int, int]:
        """Return how many nodes the cluster has, and the cores of each at least.

        Raises:
            QueryFailed, OSError: it does not say.
        """
        command = self._provider.size()
        result = None if command is None else await self.host.command(command)
        if result is None:
            raise QueryFailed("it does not say how large it is: say cores_per_node")
        return self._provider.sized(result)

    async def _query(self, job_id: str) -> tuple[tuple[BatchJob, ...] | None, str]:
        """Return the jobs that the batch system tells of, or None and why it does not."""
        try:
            result = await self.host.command(self._provider.query(job_id))
            return (None, "") if result is None else (self._provider.told(result), "")
        except (QueryFailed, OSError) as error:
            log.warning("%s does not tell of its jobs: %s", self._provider.name, error)
            return None, str(error)[:SAID_MAX]


def block_script(
    provider: Provider, request: BatchRequest, block: str, options: dict[str, str], enrol: str
) -> str:
    """Return what the batch job of a block runs.

    Args:
        provider: knows the batch system.
        request: of the job.
        block: what it is called.
        options: of the strategy.
        enrol: the file with which its RIFs enrol.
    """
    launched = provider.launch(request, remote_command(options, enrol))
    return f"#!/bin/sh\n# the block {block} of gspc-trio\n{launched}\n"
