"""Credentials in settings and values of a job, which its journal does not have (pure).

In what is written each one has a stand-in: a text as long as it. That of a setting follows from it and a
salt. So it can be told whether a credential that is given again is the same, and what is read again is what
it was.
Passwords and queries of URIs that a workflow makes itself cannot be given again. They are kept beside the
journal, in a file of their own, with their stand-ins.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from hashlib import pbkdf2_hmac, shake_256
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.uri import MASKED, URI_BYTES_MAX, mask_text

SEALED_BYTES_MIN = 8
"""Shorter credentials stay within values: their bytes are there by chance, too."""

STAND_IN_BYTES_MIN = 16
"""What is noted of a short credential, so that others are told from it."""

ROUNDS = 100_000
"""How often a guess has to be hashed: tens of milliseconds."""

Pairs: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Credentials and their stand-ins, of the same length."""

_NAME = re.compile(
    r"(?:^|[_.-])(?:pass(?:word|wd|phrase)|pwd|secret|credentials?|(?:api|access|private|secret)[_-]?key"
    r"|(?:access|api|auth|bearer)[_-]?token)(?:$|[_.-])",
    re.IGNORECASE,
)


class SealedSettings(Struct, frozen=True):
    """Settings as a journal has them.

    Attributes:
        shown: texts ``name=value`` with credentials masked.
        stand_ins: for each setting those of its credentials; empty if none has any.
        salt: that they were made with.
    """

    shown: tuple[str, ...]
    stand_ins: tuple[tuple[bytes, ...], ...] = ()
    salt: bytes = b""


def split_setting(setting: str) -> tuple[str, list[str]]:
    """Return a setting ``name=value`` as it is shown, and its credentials.

    These are the value, if the name says that it is one, or passwords and queries of URIs in it.
    """
    name, _, value = setting.partition("=")
    if not value:
        return setting, []
    if _NAME.search(name):
        return f"{name}={MASKED}", [value]
    shown = f"{name}={mask_text(value, value)}"
    if shown == setting:
        return setting, []
    found = re.fullmatch("(.*)".join(map(re.escape, shown.split(MASKED))), setting, re.DOTALL)
    return (f"{name}={MASKED}", [value]) if found is None else (shown, list(found.groups()))


def seal_settings(settings: Sequence[str], salt: bytes) -> tuple[SealedSettings, Pairs]:
    """Return settings without their credentials, and what stands for these.

    Args:
        settings: texts ``name=value``.
        salt: random bytes.
    """
    parts = [split_setting(setting) for setting in settings]
    shown = tuple(text for text, _ in parts)
    if not any(found for _, found in parts):
        return SealedSettings(shown), ()
    stand_ins = tuple(_stand_ins(found, salt) for _, found in parts)
    pairs = (pair for (_, found), made in zip(parts, stand_ins, strict=True) for pair in _pairs(found, made))
    return SealedSettings(shown, stand_ins, salt), _longest_first(pairs)


def open_settings(sealed: SealedSettings, given: Iterable[str]) -> tuple[list[str], Pairs, list[str]]:
    """Return settings of a journal as they were.

    Args:
        sealed: as the journal has them.
        given: those with credentials once more; others are passed over.

    Returns:
        The settings; credentials and their stand-ins; and which settings are not among those given.
    """
    parts = {setting: split_setting(setting) for setting in given}
    known = {
        (shown, _stand_ins(found, sealed.salt)): setting for setting, (shown, found) in parts.items() if found
    }
    settings, missing, pairs = [], [], list[tuple[bytes, bytes]]()
    for shown, made in zip(sealed.shown, sealed.stand_ins or ((),) * len(sealed.shown), strict=True):
        setting = known.get((shown, made), "") if made else shown
        if made and setting:
            pairs += _pairs(parts[setting][1], made)
        elif made:
            missing.append(shown)
        settings.append(setting or shown)
    return settings, _longest_first(pairs), missing


def seal(payload: bytes, pairs: Pairs) -> bytes:
    """Return bytes with stand-ins for credentials."""
    return _replaced(payload, dict(pairs))


def unseal(payload: bytes, pairs: Pairs) -> bytes:
    """Return bytes with credentials for their stand-ins."""
    return _replaced(payload, {stand_in: credential for credential, stand_in in pairs})


def _replaced(payload: bytes, by: dict[bytes, bytes]) -> bytes:
    """Return bytes with all that is to be replaced, at once: what is new may begin like another one."""
    if not any(old in payload for old in by):
        return payload
    return re.sub(b"|".join(map(re.escape, by)), lambda found: by[found[0]], payload)


def _stand_ins(credentials: Iterable[str], salt: bytes) -> tuple[bytes, ...]:
    return tuple(_stand_in(_bytes_of(one), salt) for one in credentials)


def _stand_in(credential: bytes, salt: bytes) -> bytes:
    size = max(len(credential), STAND_IN_BYTES_MIN)
    key = pbkdf2_hmac("sha256", credential, salt, ROUNDS)
    return urlsafe_b64encode(shake_256(key).digest(size))[:size]


def _pairs(credentials: Iterable[str], stand_ins: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = zip(map(_bytes_of, credentials), stand_ins, strict=True)
    return [(one, made[: len(one)]) for one, made in pairs if len(one) >= SEALED_BYTES_MIN]


def _longest_first(pairs: Iterable[tuple[bytes, bytes]]) -> Pairs:
    return tuple(sorted(dict(pairs).items(), key=lambda pair: (-len(pair[0]), pair)))


def _bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


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
