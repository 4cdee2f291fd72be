"""What the options of a host say about staging."""

from __future__ import annotations

import pytest

from gspc_trio.components.provision.staging import (
    FILE_THROTTLES,
    StagingMode,
    StagingSettings,
    removal_script,
    staging_settings,
)
from gspc_trio.components.provision.throttle import DEFAULTS


def test_the_usual_way_is_that_of_the_rif() -> None:
    assert staging_settings({"time": "1h"}) == StagingSettings(StagingMode.PROVIDER)
    assert set(FILE_THROTTLES) == {name for name in DEFAULTS if "file" in name}


def test_a_site_directory_comes_with_its_throttles() -> None:
    options = {
        "staging": "swift",
        "site_directory": "/shared/x",
        "file_transfers": "2",
        "file_operations": "off",
    }
    wanted = StagingSettings(StagingMode.SWIFT, "/shared/x", {"file_transfers": 2, "file_operations": None})
    assert staging_settings(options) == wanted


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"staging": "swft"},
            r"no staging 'swft' \(did you mean 'swift'\?\); there are: provider, swift",
        ),
        ({"staging": "swift"}, "staging=swift needs site_directory=DIR, the whole path"),
        ({"staging": "swift", "site_directory": "here"}, "staging=swift needs site_directory=DIR"),
        ({"site_directory": "/shared"}, "site_directory is for staging=swift, not for staging=provider"),
        ({"staging": "wrapper", "file_transfers": "3"}, "file_transfers is for staging=swift, not for"),
        (
            {"staging": "swift", "site_directory": "/s", "file_transfers": "0"},
            "file_transfers: '0' is no limit",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        staging_settings(options)
    assert "\n" not in str(caught.value)


def test_the_script_that_removes_takes_names_as_they_are() -> None:
    assert removal_script("/a b/c'd", "/e") == "#!/bin/sh\nexec rm -rf -- '/a b/c'\"'\"'d' /e\n"
