"""Credentials of a run-time system: it mints them, and looks at them when they come back (COA-7).

Their secret is made for this process and leaves it never; so none outlives a run-time system that ends.
"""

from __future__ import annotations

import secrets
import time
from typing import TypeAlias

from gspc_trio.components.coallocation.agents.delegation import (
    EXPIRY_S_MAX,
    ID_BYTES,
    Credential,
    CredentialLimit,
    CredentialVerifier,
    MintCredential,
    NotDelegated,
    UseCredential,
    mint,
)
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.rpc import IncomingCall

SECRET_BYTES = 32

CLOCKS_S = 60.0
"""By so much the clocks of two hosts may differ."""

CredentialQuestion: TypeAlias = MintCredential | UseCredential
CREDENTIAL_QUESTIONS = (MintCredential, UseCredential)
"""What clients may ask about credentials."""


class Delegation:
    """Answers those who ask for a credential, or bring one."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._verifier = CredentialVerifier(self._secret)

    def answer(self, call: IncomingCall, question: CredentialQuestion) -> None:
        """Answer a client."""
        now_s = time.time()
        try:
            if isinstance(question, MintCredential):
                call.reply(mint(self._secret, secrets.token_bytes(ID_BYTES), question.limit, now_s))
            else:
                self._verifier.accept(question.credential, question.use, now_s)
                call.reply(Done())
        except (ValueError, NotDelegated) as error:
            call.fail(error)


async def minted(rts: RunTimeSystem, site: str | None = None, request: str | None = None) -> Credential:
    """Have a run-time system mint a credential that is good for nearly an hour.

    Args:
        rts: the run-time system.
        site: name of the only site; None: any name that it has.
        request: the only one whose tries it starts; None: whichever is named first.

    Raises:
        PeerGone: the run-time system is gone.
    """
    limit = CredentialLimit(site, expires_s=time.time() + EXPIRY_S_MAX - CLOCKS_S, request=request)
    return await rts.peer.call(MintCredential(limit))
