"""Which settings have credentials, and that what is written without them is read again as it was."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gspc_trio.components.job.credentials import (
    STAND_IN_BYTES_MIN,
    open_settings,
    seal,
    seal_settings,
    split_setting,
    unseal,
)

SALT = bytes(16)
SETTINGS = ("n=3", "password=hush1234567", "uri=s3://me:topsecret@h/x?token=abcdefgh")


@pytest.mark.parametrize(
    ("setting", "shown", "credentials"),
    [
        ("n=3", "n=3", []),
        ("flag", "flag", []),
        ("password=", "password=", []),
        ("password=a=b", "password=***", ["a=b"]),
        ("db_password=x", "db_password=***", ["x"]),
        ("AWS_SECRET_ACCESS_KEY=x", "AWS_SECRET_ACCESS_KEY=***", ["x"]),
        ("apiKey=x", "apiKey=***", ["x"]),
        ("auth-token=x", "auth-token=***", ["x"]),
        ("tokens=5", "tokens=5", []),
        ("passes=5", "passes=5", []),
        ("keys=5", "keys=5", []),
        ("uri=https://h/x", "uri=https://h/x", []),
        ("uri=https://me:a@b@h/x?k=v#f", "uri=https://me:***@h/x?***", ["a@b", "k=v#f"]),
        ("all=at https://a:b@h c://d:e@h", "all=at https://a:***@h c://d:***@h", ["b", "e"]),
        ("zip=zip://a::https://me:p@h/z", "zip=zip://a::https://me:***@h/z", ["p"]),
    ],
)
def test_credentials_of_settings(setting: str, shown: str, credentials: list[str]) -> None:
    assert split_setting(setting) == (shown, credentials)


def test_settings_are_noted_without_credentials_and_had_again_by_whoever_gives_them() -> None:
    sealed, pairs = seal_settings(SETTINGS, SALT)
    assert sealed.shown == ("n=3", "password=***", "uri=s3://me:***@h/x?***")
    assert [credential for credential, _ in pairs] == [b"token=abcdefgh", b"hush1234567", b"topsecret"]
    assert not any(credential in repr(sealed).encode() for credential, _ in pairs)
    assert open_settings(sealed, SETTINGS) == (list(SETTINGS), pairs, [])
    other = ("password=another1234", SETTINGS[2])
    settings = ["n=3", "password=***", SETTINGS[2]]
    assert open_settings(sealed, other) == (settings, (pairs[0], pairs[2]), ["password=***"])
    assert open_settings(sealed, ()) == (list(sealed.shown), (), [*sealed.shown[1:]])


def test_settings_without_credentials_are_noted_as_they_are() -> None:
    sealed, pairs = seal_settings(("a=1", "a=2"), SALT)
    assert (sealed.stand_ins, sealed.salt, pairs) == ((), b"", ())
    assert open_settings(sealed, ()) == (["a=1", "a=2"], (), [])


def test_a_short_credential_is_noted_so_that_others_are_told_from_it_and_stays_within_values() -> None:
    sealed, pairs = seal_settings(("secret=abc",), SALT)
    ((stand_in,),) = sealed.stand_ins
    assert (pairs, len(stand_in)) == ((), STAND_IN_BYTES_MIN)
    assert open_settings(sealed, ("secret=abc",)) == (["secret=abc"], (), [])
    assert open_settings(sealed, ("secret=abd",))[2] == ["secret=***"]


_, PAIRS = seal_settings((*SETTINGS, "secret=hush1234567890", "secret_key=aaaaaaaa"), SALT)
PIECES = st.one_of(st.binary(max_size=5), st.sampled_from([one for one, _ in PAIRS]), st.just(b"a"))


@given(st.lists(PIECES).map(b"".join))
@example(b"hush1234567890hush1234567aaaaaaaaaaaaaaaaaaaaa")
def test_what_is_written_has_no_credential_is_as_long_and_is_read_again_as_it_was(payload: bytes) -> None:
    written = seal(payload, PAIRS)
    assert not any(credential in written for credential, _ in PAIRS[:-1])
    assert len(written) == len(payload)
    assert unseal(written, PAIRS) == payload
