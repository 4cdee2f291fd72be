"""What people read when a driver of URIs has failed."""

from __future__ import annotations

from gspc_trio.compute.uri_transfers import describe


def test_an_archive_on_a_server_that_sends_no_parts_says_what_to_write() -> None:
    error = ValueError(
        "The HTTP server doesn't appear to support range requests. Only reading this file from the "
        "beginning is supported. Open with block_size=0 for a streaming file interface."
    )
    assert describe(error, "zip://a::http://host/all.zip") == (
        "the server sends no parts of files: put simplecache:: before http"
    )
