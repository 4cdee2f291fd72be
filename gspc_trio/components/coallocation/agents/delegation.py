"""Credentials for one request, which each hop may limit and none can widen (COA-7).

A run-time system mints one from its secret, which never travels. Each limit is bound to all before it by an
HMAC whose key is the one before: who has a credential can add a limit, but not take one away, as in
"Macaroons: Cookies with Contextual Caveats" (Birgisson and others, NDSS 2014).
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from msgspec import Struct

from gspc_trio.core.messages import Done, Question

EXPIRY_S_MAX = 3600.0
"""A credential ends so long after it was minted, at the latest."""

ID_BYTES = 16
LIMITS_MAX = 64
SWEEP_S = 60.0
"""How often those that have expired are forgotten."""
_LABEL = b"gspc-trio co-allocation credential 1\0"


class NotDelegated(Exception):
    """A credential does not allow this; the message says why."""


class CredentialLimit(Struct, frozen=True, array_like=True):
    """What a credential is limited to; None is no limit of this kind.

    Attributes:
        site: the only site.
        classes: of resources.
        count: of resources in all.
        expires_s: end, in seconds since 1970.
        subtree: the service that alone may pass it on, and those below it.
        request: that it is for; or of which it starts the only try, whose name begins with the request's.
    """

    site: str | None = None
    classes: frozenset[str] | None = None
    count: int | None = None
    expires_s: float | None = None
    subtree: tuple[str, ...] | None = None
    request: str | None = None


class Credential(Struct, frozen=True):
    """A random id, all limits in order, and the HMAC over them."""

    credential_id: bytes
    limits: tuple[CredentialLimit, ...]
    seal: bytes


class CredentialUse(Struct, frozen=True):
    """What someone wants with a credential.

    Attributes:
        site: where.
        classes, count: what, in all.
        path: names of the services that it came through, from the top.
    """

    site: str
    classes: frozenset[str]
    count: int
    path: tuple[str, ...] = ()


class MintCredential(Question[Credential], frozen=True):
    """Ask a run-time system for a credential with this limit, which has an end."""

    limit: CredentialLimit


class UseCredential(Question[Done], frozen=True):
    """Ask a run-time system whether a credential allows this; it is used up by that."""

    credential: Credential
    use: CredentialUse


def _seal(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, hashlib.sha256)


def _encoded(limit: CredentialLimit) -> bytes:
    classes = None if limit.classes is None else sorted(limit.classes)
    said = [limit.site, classes, limit.count, limit.expires_s, limit.subtree, limit.request]
    return msgspec.json.encode(said)


def mint(secret: bytes, credential_id: bytes, limit: CredentialLimit, now_s: float) -> Credential:
    """Make a credential.

    Args:
        secret: of the run-time system.
        credential_id: 16 random bytes, used for nothing else.
        limit: the first one, with an end.
        now_s: seconds since 1970.

    Raises:
        ValueError: the id has another size, or the end is missing, past, or too far away.
    """
    if len(credential_id) != ID_BYTES:
        raise ValueError(f"the id of a credential has {ID_BYTES} bytes, not {len(credential_id)}")
    if limit.expires_s is None or not now_s < limit.expires_s <= now_s + EXPIRY_S_MAX:
        raise ValueError(f"a credential ends within {EXPIRY_S_MAX:g} s")
    seal = _seal(_seal(secret, _LABEL + credential_id), _encoded(limit))
    return Credential(credential_id, (limit,), seal)


def restrict(credential: Credential, limit: CredentialLimit) -> Credential:
    """Return the credential with one more limit.

    Raises:
        ValueError: the limit is wider than one that there is, or there are too many.
    """
    if len(credential.limits) >= LIMITS_MAX:
        raise ValueError(f"a credential has at most {LIMITS_MAX} limits")
    for before in credential.limits:
        if problem := _wider(before, limit):
            raise ValueError(f"{problem} of a credential can only become narrower")
    return Credential(
        credential.credential_id,
        (*credential.limits, limit),
        _seal(credential.seal, _encoded(limit)),
    )


def _wider(before: CredentialLimit, after: CredentialLimit) -> str:
    """Return what a later limit widens, "" if nothing."""
    if after.site is not None and before.site not in (None, after.site):
        return "the site"
    if after.classes is not None and before.classes is not None and not after.classes <= before.classes:
        return "the classes"
    if after.count is not None and before.count is not None and after.count > before.count:
        return "the count"
    if (
        after.expires_s is not None
        and before.expires_s is not None
        and not after.expires_s <= before.expires_s
    ):
        return "the end"
    above = before.subtree
    if above is not None and after.subtree is not None and after.subtree[: len(above)] != above:
        return "the subtree"
    of = before.request
    if after.request is not None and of is not None and not f"{after.request}/".startswith(f"{of}/"):
        return "the request"
    return ""


class CredentialVerifier:
    """Looks at the credentials that a run-time system gets back: each starts the parts of one request.

    One that was limited to different tries of requests, or to different requests, starts each of these once.

    Args:
        secret: with which it has minted them.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._sweep_s = 0.0
        self._used: dict[tuple[bytes, str], float] = {}

    def accept(self, credential: Credential, use: CredentialUse, now_s: float) -> None:
        """Take a credential, which is used up by this.

        Args:
            credential: what came.
            use: what is wanted.
            now_s: seconds since 1970.

        Raises:
            NotDelegated: it was not minted here, was changed, has ended, was used, or does not allow this.
        """
        if not 1 <= len(credential.limits) <= LIMITS_MAX:
            raise NotDelegated("a credential has no limits, or too many")
        seal = _seal(self._secret, _LABEL + credential.credential_id)
        for limit in credential.limits:
            seal = _seal(seal, _encoded(limit))
        if not hmac.compare_digest(seal, credential.seal):
            raise NotDelegated("the credential was not made here, or was changed on its way")
        end_s = min(limit.expires_s for limit in credential.limits if limit.expires_s is not None)
        if not now_s < end_s:
            raise NotDelegated("the credential has expired")
        for limit in credential.limits:
            if problem := _forbids(limit, use):
                raise NotDelegated(problem)
        for number, limit in enumerate(credential.limits):
            for before in credential.limits[:number]:
                if problem := _wider(before, limit):
                    raise NotDelegated(f"{problem} of the credential was made wider")
        if now_s >= self._sweep_s:
            self._used = {one: until_s for one, until_s in self._used.items() if until_s > now_s}
            self._sweep_s = now_s + SWEEP_S
        if _key(credential) in self._used:
            raise NotDelegated("the credential was used already")
        self._used[_key(credential)] = end_s

    def give_back(self, credential: Credential) -> None:
        """Nothing was started with it: the next try of its request may use it again."""
        self._used.pop(_key(credential), None)


def _key(credential: Credential) -> tuple[bytes, str]:
    """Return what a credential is used up for: the try to which the first one who got it has limited it."""
    minted, *added = (limit.request for limit in credential.limits)
    tries = [request for request in added if request is not None]
    return credential.credential_id, tries[0] if tries else minted or ""


def _names(classes: frozenset[str]) -> str:
    return ", ".join(sorted(classes))


def _forbids(limit: CredentialLimit, use: CredentialUse) -> str:
    if limit.site not in (None, use.site):
        return f"the credential is for site {limit.site}, not for {use.site}"
    if limit.classes is not None and not use.classes <= limit.classes:
        return f"the credential is for {_names(limit.classes)}, not for {_names(use.classes)}"
    if limit.count is not None and use.count > limit.count:
        return f"the credential is for {limit.count} resources, not for {use.count}"
    if limit.subtree is not None and use.path[: len(limit.subtree)] != limit.subtree:
        return f"the credential is for what is below {'/'.join(limit.subtree)}"
    return ""
