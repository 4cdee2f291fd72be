"""Errors of connecting: why a connection did not come about, as one line for people."""

from __future__ import annotations


class ConnectionProblem(OSError):
    """No connection.

    Attributes:
        address: where it was tried.
        reason: the message, one line.
        wanted: the role that was looked for, "" if any would do.
    """

    wanted = ""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(reason)
        self.address = address
        self.reason = reason


class ConnectFailed(ConnectionProblem):
    """Nobody listens there, or whoever does does not speak our protocol."""


class HandshakeCut(ConnectFailed):
    """Whoever listens there closed the connection during the handshake, and gave no reason.

    A listener does that to the oldest of too many such connections: it is worth another try.
    """


class TlsFailed(ConnectionProblem):
    """No encryption: the other side has no certificate of ours, or does not speak TLS 1.3."""


class AuthenticationFailed(ConnectionProblem):
    """Whoever listens there has another token or another role."""


class WrongRole(AuthenticationFailed):
    """Whoever listens there is something else than what was looked for."""


class VersionMismatch(ConnectionProblem):
    """Whoever listens there speaks no version of the protocol that we speak."""
