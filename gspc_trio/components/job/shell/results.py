"""Values at an output port of a job, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from gspc_trio.core.similar import did_you_mean
from gspc_trio.iml.errors import ImlError
from gspc_trio.iml.shell.platform import platform
from gspc_trio.protocol.values import is_reference
from gspc_trio.workflow.tokens import Outputs, Token, Value


class OutputPorts(Protocol):
    """What there is to read of a workflow engine."""

    def output_ports(self) -> Sequence[str]:
        """Return the names of the output ports."""
        ...

    def output_tokens(self, port: str, seen: int) -> list[Token]:
        """Return the tokens at an output port but for the first ``seen``, oldest first."""
        ...

    def value_of(self, token: Token) -> Value:
        """Return the value of a token."""
        ...


class FollowedJob(Protocol):
    """What there is to wait for of a job."""

    @property
    def has_ended(self) -> bool:
        """Whether the job is over."""
        ...

    async def wait_news(self) -> None:
        """Wait until there may be new results."""
        ...

    async def wait_outputs(self) -> Outputs:
        """Wait for the end of the job and return all its results; JobFailed if it did not finish."""
        ...


def checked_port(ports: OutputPorts | None, port: str) -> str:
    """Return the name of an output port: the only one if "".

    Raises:
        ValueError: there is no such port.
    """
    names = ports.output_ports() if ports is not None else ()
    if not port and len(names) == 1:
        return names[0]
    if port not in names:
        there = ", ".join(names) or "none"
        raise ValueError(f"no output port {port!r}{did_you_mean(port, names)}; output ports: {there}")
    return port


async def results_of(job: FollowedJob, ports: OutputPorts, port: str) -> AsyncIterator[Value]:
    """Yield the values at a port; what ``Job.results`` does."""
    count = 0
    while True:
        has_ended = job.has_ended
        tokens = ports.output_tokens(port, count)
        for token in tokens:
            try:
                value = await _open(ports, token)
            except ImlError:  # it is made again before the job ends
                for value in (await job.wait_outputs())[port][count:]:
                    yield value
                return
            count += 1
            yield value
        if tokens:
            continue
        if has_ended:
            break
        await job.wait_news()
    await job.wait_outputs()


async def _open(ports: OutputPorts, token: Token) -> Value:
    """Return the value of a token; what lies in a memory layer is never read in trio's thread."""
    if token.data is not None and is_reference(token.data):
        return await platform().in_thread(lambda: ports.value_of(token))
    return ports.value_of(token)
