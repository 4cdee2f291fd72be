"""COA-7: credentials for one request: limits are added, never taken away."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gspc_trio.components.coallocation.agents.delegation import (
    EXPIRY_S_MAX,
    Credential,
    CredentialLimit,
    CredentialUse,
    CredentialVerifier,
    NotDelegated,
    mint,
    restrict,
)

SECRET = b"s" * 32
CORE = frozenset(["core"])
FIRST = CredentialLimit("a", frozenset(["core", "node"]), 8, 100.0, ("top",))
USE = CredentialUse("a", CORE, 4, ("top", "left"))


def made(*limits: CredentialLimit) -> Credential:
    one = mint(SECRET, b"i" * 16, FIRST, 0.0)
    for limit in limits:
        one = restrict(one, limit)
    return one


def test_each_hop_adds_limits_and_the_credential_is_good_once():
    one = made(CredentialLimit(count=4, subtree=("top", "left")), CredentialLimit(classes=CORE))
    verifier = CredentialVerifier(SECRET)
    verifier.accept(one, USE, 99.0)
    with pytest.raises(NotDelegated, match="used already"):
        verifier.accept(made(), USE, 99.0)
    verifier.give_back(one)
    verifier.accept(one, USE, 99.0)


@pytest.mark.parametrize(
    ("credential", "use", "now_s", "reason"),
    [
        (made(), USE, 100.0, "expired"),
        (made(CredentialLimit(expires_s=50.0)), USE, 50.0, "expired"),
        (made(), replace(USE, site="b"), 1.0, "is for site a, not for b"),
        (
            made(CredentialLimit(classes=CORE)),
            replace(USE, classes=frozenset(["node"])),
            1.0,
            "is for core, not for n",
        ),
        (made(CredentialLimit(count=3)), USE, 1.0, "for 3 resources, not for 4"),
        (made(CredentialLimit(subtree=("top", "right"))), USE, 1.0, "for what is below top/right"),
        (replace(made(), limits=(replace(FIRST, count=9),)), USE, 1.0, "changed"),
        (replace(made(CredentialLimit(count=4)), limits=(FIRST,)), USE, 1.0, "changed"),
        (replace(made(), credential_id=b"j" * 16), USE, 1.0, "changed"),
        (replace(made(), limits=()), USE, 1.0, "no limits"),
        (mint(b"t" * 32, b"i" * 16, FIRST, 0.0), USE, 1.0, "not made here"),
    ],
)
def test_what_is_not_allowed_is_refused(
    credential: Credential, use: CredentialUse, now_s: float, reason: str
):
    with pytest.raises(NotDelegated, match=reason):
        CredentialVerifier(SECRET).accept(credential, use, now_s)


@pytest.mark.parametrize(
    "wider",
    [
        CredentialLimit(site="b"),
        CredentialLimit(classes=frozenset(["gpu"])),
        CredentialLimit(count=9),
        CredentialLimit(expires_s=101.0),
        CredentialLimit(subtree=("other",)),
    ],
)
def test_a_limit_cannot_be_made_wider_by_us_or_others(
    wider: CredentialLimit, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ValueError, match="only become narrower"):
        restrict(made(), wider)
    with monkeypatch.context() as context:  # another one's code adds what it likes
        context.setattr("gspc_trio.components.coallocation.agents.delegation._wider", lambda *_: "")
        forged = restrict(made(), wider)
    with pytest.raises(NotDelegated):
        CredentialVerifier(SECRET).accept(forged, USE, 1.0)


def test_a_credential_has_an_end_within_an_hour():
    for end_s in (None, 0.0, EXPIRY_S_MAX + 0.1):
        with pytest.raises(ValueError, match="ends within 3600 s"):
            mint(SECRET, b"i" * 16, CredentialLimit(expires_s=end_s), 0.0)
    with pytest.raises(ValueError, match="16 bytes, not 1"):
        mint(SECRET, b"i", FIRST, 0.0)


def test_a_number_of_limits_is_the_most():
    one = made()
    for _ in range(63):
        one = restrict(one, CredentialLimit())
    with pytest.raises(ValueError, match="at most 64"):
        restrict(one, CredentialLimit())


def test_a_credential_of_one_request_starts_each_of_its_tries_once_and_no_other_request():
    verifier = CredentialVerifier(SECRET)
    lent = mint(SECRET, bytes(16), CredentialLimit("a", expires_s=100.0, request="r"), 0.0)
    use = CredentialUse("a", frozenset(["core"]), 1)
    for name in ("r/1", "r/2"):
        limited = restrict(lent, CredentialLimit(request=name))
        verifier.accept(limited, use, 1.0)
        for again in (limited, restrict(limited, CredentialLimit(request=f"{name}/more"))):
            with pytest.raises(NotDelegated, match="used already"):
                verifier.accept(again, use, 1.0)
    for other in ("q", "r2/1", "", "r1"):
        with pytest.raises(ValueError, match="the request of a credential can only become narrower"):
            restrict(lent, CredentialLimit(request=other))
