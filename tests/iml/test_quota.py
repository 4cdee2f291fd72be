"""What people say of the memory and the disk that a server may use."""

from __future__ import annotations

import pytest

from gspc_trio.iml.quota import Quota, parse_size, quota_of


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("1000000", 10**6), ("4GiB", 1 << 32), (" 1.5 k ", 1536), ("2TB", 1 << 41), ("7B", 7)],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "much", "-1", "1e9", "4 GiB of it"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write for example 4GiB"):
        parse_size(text)


def test_what_the_options_of_a_rif_say() -> None:
    assert quota_of({"python": "/usr/bin/python3"}) == Quota()
    options = {"memory": "1MiB", "spill": "1GiB", "spill_directory": "/scratch"}
    assert quota_of(options) == Quota(1 << 20, 1 << 30, "/scratch")
    with pytest.raises(ValueError, match="'lots' is not a size"):
        quota_of({"spill": "lots"})
