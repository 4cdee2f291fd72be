"""Encryption between hosts: TLS 1.3, with certificates of a run-time system's own authority on both sides.

Credentials are one text of PEM blocks: a certificate, its key, and the authority's certificate last. Who has
some of the same authority belongs to the run-time system, whatever host it speaks from, so host names are not
compared; that the other side also knows the token is seen to by our own handshake.
"""

from __future__ import annotations

import os
import ssl

import trio

from gspc_trio.nursery.connections.errors import TlsFailed

_BEGIN = "-----BEGIN CERTIFICATE-----"


class BadCredentials(ValueError):
    """These are no credentials for TLS; one line says why."""


def make_context(credentials: str, *, server: bool) -> ssl.SSLContext:
    """Return the settings of one side of connections.

    Args:
        credentials: see the module.
        server: whether this is the side that listens.

    Raises:
        BadCredentials: they cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # Nothing is ever resumed: every connection is long, and a ticket would be one more secret.
    if server:
        context.num_tickets = 0
    authority = credentials[credentials.rfind(_BEGIN) :] if _BEGIN in credentials else ""
    # The library reads certificates from files only; this one has no name and goes with its descriptor.
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(credentials)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise BadCredentials(f"these credentials cannot be used for TLS: {error}") from error
    finally:
        os.close(descriptor)
    return context


async def wrap_stream(
    stream: trio.abc.Stream, context: ssl.SSLContext, *, server: bool
) -> trio.SSLStream[trio.abc.Stream]:
    """Return the stream encrypted, once both sides have shown their certificates.

    Raises:
        TlsFailed: the other side has none that is ours, or does not speak TLS 1.3.
    """
    wrapped = trio.SSLStream(stream, context, server_side=server, https_compatible=True)
    try:
        await wrapped.do_handshake()
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        cause = error.__cause__
        why = getattr(cause, "reason", None) or "it closed the connection"
        raise TlsFailed("", f"no TLS: {str(why).lower().replace('_', ' ')}") from error
    return wrapped
