"""Credentials in the settings of a job, which its journal does not have (pure).

In what is written each one has a stand-in: a text as long as it, which follows from it and a salt. So it can
be told whether a credential that is given again is the same, and what is read again is what it was.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from hashlib import pbkdf2_hmac, shake_256
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.uri import MASKED, mask_text

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
