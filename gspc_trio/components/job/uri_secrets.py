"""Passwords and queries of URIs that a workflow makes itself, which its journal does not have (pure).

Nobody can give these again, so they are kept beside the journal, in a file of their own. In the journal each
one has a stand-in as long as it: what is read again is what it was, as long as both are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gspc_trio.core.uri import URI_BYTES_MAX

SEALED, AS_IT_WAS = b"\xc1\x01", b"\xc1\x00"
"""What is before bytes that have stand-ins, and before others that begin like one of these."""

TRIES_MAX = 100
"""Stand-ins of a very short secret may be used up; then more of the URI is replaced."""

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# It begins behind the scheme, and goes as far as it may: a byte more does no harm.
_CHARACTER = rb"(?:[!#-;=?-~]|[\xc2-\xf4][\x80-\xbf]{1,3})"
_URI = re.compile(rb"(://)(?<=[A-Za-z0-9+.\-]://)(%s{1,%d})" % (_CHARACTER, URI_BYTES_MAX))
_SECRETS = re.compile(rb"(.*@)?([^?#]*)(?:([?#])(.*))?", re.DOTALL)


class SecretsGone(ValueError):
    """There are stand-ins of secrets that are not there."""


class UriSecrets:
    """URIs with a secret, and what stands for each.

    Args:
        random: returns so many random bytes.
        known: URIs and their stand-ins, from before.
    """

    def __init__(self, random: Callable[[int], bytes], known: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._random = random
        self._stand_ins: dict[bytes, bytes] = dict(known)
        self._uris: dict[bytes, bytes] = {made: uri for uri, made in self._stand_ins.items()}
        self._new: list[tuple[bytes, bytes]] = []

    def known(self) -> list[tuple[bytes, bytes]]:
        """Return all URIs with their stand-ins."""
        return list(self._stand_ins.items())

    def take_new(self) -> list[tuple[bytes, bytes]]:
        """Return those that were made since this was called last: to be durable before what has them."""
        new, self._new = self._new, []
        return new

    def seal(self, payload: bytes | memoryview) -> bytes | memoryview:
        """Return bytes with stand-ins for the secrets of URIs, or the same if there are none."""
        found = (match for match in _URI.finditer(payload) if b"@" in match[2] or _has_query(match[2]))
        if next(found, None) is None:
            return AS_IT_WAS + payload if payload[:1] == SEALED[:1] else payload
        return SEALED + _URI.sub(self._stand_in_of, payload)

    def unseal(self, payload: bytes) -> bytes:
        """Return bytes as they were before they were sealed, if they were.

        Raises:
            SecretsGone: what it has stand-ins for is not known.
        """
        head, rest = payload[: len(SEALED)], payload[len(SEALED) :]
        if head != SEALED:
            return rest if head == AS_IT_WAS else payload
        if not any(match[0] in self._uris for match in _URI.finditer(rest)):
            raise SecretsGone("the passwords of URIs that belong to it are not there")
        return _URI.sub(lambda match: self._uris.get(match[0], match[0]), rest)

    def _stand_in_of(self, match: re.Match[bytes]) -> bytes:
        uri: bytes = match[0]
        made = self._stand_ins.get(uri)
        if made is not None or not (b"@" in match[2] or _has_query(match[2])):
            return made or uri
        parts = _SECRETS.fullmatch(match[2])
        assert parts is not None, "all is optional in it"
        user, shown, mark, query = (part or b"" for part in parts.groups())
        for tries in range(2 * TRIES_MAX):
            made = match[1] + self._letters(len(user) - bool(user)) + user[-1:] + shown + mark
            made += self._letters(len(query))
            if tries >= TRIES_MAX:
                made = match[1] + self._letters(len(match[2]))
            if made not in self._uris and made not in self._stand_ins:
                self._stand_ins[uri] = made
                self._uris[made] = uri
                self._new.append((uri, made))
                return made
        return uri  # one or two characters long, and no secret

    def _letters(self, count: int) -> bytes:
        return bytes(_LETTERS[byte & 63] for byte in self._random(count))


def _has_query(text: bytes) -> bool:
    """Whether there is something behind a question mark or a hash."""
    return re.search(rb"[?#].", text, re.DOTALL) is not None
