"""What a journal has in place of the secrets of URIs that a workflow makes itself."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gspc_trio.components.job.credentials import AS_IT_WAS, SEALED, SecretsGone, UriSecrets

SIGNED = b"https://host/data.csv?sig=hunter2"
WITH_PASSWORD = b"s3://me:hunter2@bucket/x"

pieces = st.one_of(
    st.sampled_from(
        [SIGNED, WITH_PASSWORD, b"zip://a::https://u:hunter2@h/z.zip", b"https://h/x", b"a://?", b"a://?x"]
    ),
    st.binary(max_size=20) | st.sampled_from([SEALED, AS_IT_WAS, SEALED[:1]]),
    st.text("ab:/@?#. \xe4", max_size=12).map(str.encode),
)


def new(known: list[tuple[bytes, bytes]] | None = None) -> UriSecrets:
    return UriSecrets(random.Random(0).randbytes, known or ())


@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), max_size=5))
@example([b"a://?x" + bytes([number]) for number in range(33, 127)])
@example([b"a://@" * 100])
def test_what_is_sealed_is_read_again_as_it_was(payloads: list[bytes]) -> None:
    uris = new()
    sealed = [bytes(uris.seal(payload)) for payload in payloads]
    kept = uris.take_new()
    assert sorted(kept) == sorted(uris.known())
    assert not uris.take_new()
    for payload, written in zip(payloads, sealed, strict=True):
        assert b"hunter2" not in written
        assert len(written) == len(payload) + (2 if written[:1] == SEALED[:1] else 0)
        assert new(kept).unseal(written) == payload


def test_only_secrets_are_replaced_and_the_same_one_alike() -> None:
    uris = new()
    first = bytes(uris.seal(b"[" + SIGNED + b"\n" + WITH_PASSWORD))
    assert first.startswith(SEALED + b"[https://host/data.csv?")
    assert first.endswith(b"@bucket/x")
    assert uris.seal(b"[" + SIGNED + b"\n" + WITH_PASSWORD) == first
    assert len(uris.take_new()) == 2
    plain = b"https://host/data.csv and x@y?z"
    assert uris.seal(plain) is plain


def test_without_the_secrets_nothing_goes_on() -> None:
    sealed = bytes(new().seal(SIGNED))
    with pytest.raises(SecretsGone):
        new().unseal(sealed)
