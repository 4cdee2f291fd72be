"""A process that stays, and answers what else a process for each command would do (``Provider.helper``).

It is started as ``PROGRAM serve FD``. On the socket FD it gets questions, ``[[ARGUMENT, ...], STDIN]``, and
answers one after the other, ``[STATUS, OUTPUT, ERRORS]``, one line of JSON each. It ends when the socket is
closed.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import trio

from gspc_trio.components.provision.batch import Command, CommandResult
from gspc_trio.components.provision.shell.batch_host import BatchHost, StartSoon
from gspc_trio.components.provision.shell.commands import COMMAND_TIMEOUT_S
from gspc_trio.nursery.scopes.process import Process, open_process

log: logging.Logger = logging.getLogger(__name__)

IDLE_S = 60.0

LAST_WORDS_S = 1.0
"""How long to read on what a helper printed that has closed its socket."""

END_GRACE_S = 4.0
"""How long it may take to leave what it is connected to."""


class _Question:
    """A command that is to be answered; ``result`` stays None if nobody has answered it."""

    def __init__(self, arguments: tuple[str, ...], stdin: str) -> None:
        self.line = msgspec.json.encode((arguments, stdin)) + b"\n"
        self.result: CommandResult | None = None
        self.failure: OSError | None = None
        self.answered = trio.Event()


class _Helper:
    """The process, and our end of its socket."""

    def __init__(self, process: Process, stream: trio.SocketStream) -> None:
        self._process = process
        self._stream = stream
        self._unread = bytearray()
        self._last_words = ""
        self._silent = trio.Event()

    async def listen(self) -> None:
        """Keep the last line that it prints, until it ends."""
        while True:
            try:
                line = (await self._process.receive_line()).strip()
            except trio.EndOfChannel:
                self._silent.set()
                return
            except ValueError:
                line = ""
            self._last_words = line or self._last_words

    async def answer(self, question: _Question, timeout_s: float) -> bool:
        """Have a question answered; return False when this helper will answer nothing any more."""
        problem = "it has ended"
        try:
            with trio.fail_after(timeout_s):
                question.result = await self._ask(question.line)
                return True
        except trio.TooSlowError:
            problem = f"it has not answered within {timeout_s:g} s"
        except (trio.BrokenResourceError, trio.EndOfChannel):
            with trio.move_on_after(LAST_WORDS_S):
                await self._silent.wait()
            if self._last_words:
                question.result = CommandResult(1, "", self._last_words)
        except msgspec.MsgspecError as error:
            problem = f"it says what cannot be read: {error}"
        log.warning("a helper is given up: %s%s", problem, self._last_words and f": {self._last_words}")
        return False

    async def _ask(self, line: bytes) -> CommandResult:
        await self._stream.send_all(line)
        while b"\n" not in self._unread:
            data = await self._stream.receive_some()
            if not data:
                raise trio.EndOfChannel
            self._unread += data
        answer, _, self._unread = self._unread.partition(b"\n")
        return CommandResult(*msgspec.json.decode(answer, type=tuple[int, str, str]))


class HelperHost(BatchHost):
    """This host, where the commands of one program are answered by a process of it that stays.

    Args:
        program: with which these commands begin.
        idle_s: after so long without a question the process ends, if nobody uses it.
        answer_s: how long an answer may take; then the process is killed.
    """

    def __init__(self, program: Command, idle_s: float = IDLE_S, answer_s: float = COMMAND_TIMEOUT_S) -> None:
        self._program = program
        self._idle_s, self._answer_s = idle_s, answer_s
        self._start_soon: StartSoon | None = None
        self._users = 0
        self._asked: deque[_Question] = deque()
        self._changed = trio.Event()
        self._is_running = self._is_ending = False

    def begin(self, start_soon: StartSoon) -> None:
        """See BatchHost."""
        self._start_soon = start_soon

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """See BatchHost."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._changed.set()

    async def command(self, command: Command, stdin: str = "") -> CommandResult | None:
        """See BatchHost."""
        count = len(self._program)
        if self._start_soon is None or command[:count] != self._program:
            return await super().command(command, stdin)
        question = _Question(command[count:], stdin)
        self._asked.append(question)
        self._changed.set()
        if not self._is_running:
            self._is_running = True
            self._start_soon(self._run)
        try:
            with trio.move_on_after(2 * self._answer_s):  # the one before may take its time, too
                await question.answered.wait()
        finally:
            if question in self._asked:
                self._asked.remove(question)
        if question.failure is not None:
            raise question.failure
        return question.result

    async def _run(self) -> None:
        """Have helpers as long as they are needed; once this is cancelled, until nobody uses them."""
        self._is_ending = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, nursery.cancel_scope)
            try:
                await trio.sleep_forever()
            finally:
                self._is_ending = True
                self._changed.set()

    async def _serve(self, started_in: trio.CancelScope) -> None:
        with trio.CancelScope(shield=True):
            while await self._is_asked():
                try:
                    await self._have_answered()
                except OSError as error:
                    question = self._asked.popleft()
                    question.failure = error
                    question.answered.set()
            self._is_running = False
        started_in.cancel()

    async def _have_answered(self) -> None:
        """Start a helper, and have it answer until it is not needed any more, or it fails."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fd = theirs.fileno()
            command = (*self._program, "serve", str(fd))
            async with open_process(command, pass_fds=(fd,), grace_s=END_GRACE_S) as process:
                theirs.close()
                ours.setblocking(False)
                async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
                    helper = _Helper(process, stream)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(helper.listen)
                        goes_on = True
                        while goes_on and await self._is_asked():
                            question = self._asked.popleft()
                            goes_on = await helper.answer(question, self._answer_s)
                            question.answered.set()
                        nursery.cancel_scope.cancel()

    async def _is_asked(self) -> bool:
        """Wait until there is a question; return False when no helper is needed any more."""
        while not self._asked:
            if self._is_ending and not self._users:
                return False
            self._changed = trio.Event()
            with trio.move_on_after(self._idle_s) as idle:
                await self._changed.wait()
            if idle.cancelled_caught and not self._users:
                return False
        return True
