"""What URIs are, what they are made of, and that their secrets are not shown."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gspc_trio.core.staging import BadFileName, Gather, Stage, parts_of
from gspc_trio.core.uri import (
    BadUri,
    UriPart,
    file_name,
    is_uri,
    mask_text,
    mask_uri,
    name_in_uri,
    parts_of_uri,
    path_of,
    set_of,
)

MASKED = [
    ("s3://bucket/k", "s3://bucket/k"),
    ("s3://bucket/k?versionId=1", "s3://bucket/k?***"),
    ("https://user:pw@host:80/x?t=1#f", "https://user:***@host:80/x?***"),
    ("https://token@host/x", "https://***@host/x"),
    ("s3://KEY:SEC/RET@bucket/k", "s3://KEY:***@bucket/k"),
    ("https://u:p@ss@host/x", "https://u:***@host/x"),
    ("https://u:123/abc@h/x", "https://u:***@h/x"),
    ("https://u:1/a@b/c@h/x", "https://u:***@h/x"),
    ("http://host:8080/a@b", "http://host:***@b"),  # nobody knows whether that is a password
    ("http://host:8080/a?mail=b@c", "http://host:***"),
    ("https://u:123?abc@h/x", "https://u:***"),
    ("https://u:1#b@c@h/x?q=1", "https://u:***"),
    ("https://u::pw@h/x", "https://u:***@h/x"),
    ("https://u:p@s/s@h/x", "https://u:***@h/x"),
    ("http://[::1]:8080/a@b?x", "http://[::1]:8080/a@b?***"),
    ("https://u:pw@[::1]:80/x", "https://u:***@[::1]:80/x"),
    ("http://host/a@b", "http://host/a@b"),
    ("http://host:8080", "http://host:8080"),
    ("zip://a.csv::https://u:pw@host/z.zip?q=1", "zip://a.csv::https://u:***@host/z.zip?***"),
    ("zip://a?b::s3://k:pw@bucket/z", "zip://a?***::s3://k:***@bucket/z"),
    ("file:///a b/c", "file:///a b/c"),
    ("no/uri?x=1", "no/uri?x=1"),
]


@pytest.mark.parametrize(("uri", "shown"), MASKED)
def test_a_uri_is_shown_without_password_and_query(uri: str, shown: str) -> None:
    assert mask_uri(uri) == mask_uri(shown) == shown
    if "?b::" not in uri and "no/" not in uri:  # of a query in a text nobody knows where it ends
        said = f"cannot get {uri!r}: {uri} said 403 ({uri})."
        assert mask_text(said) == f"cannot get {shown!r}: {shown} said 403 ({shown})."
    assert mask_text(f"it says <{uri}>", uri) == f"it says <{shown}>"


@pytest.mark.parametrize("uri", ["sftp://u:p w@h/x", "sftp://u:p /w@h/x", "sftp://to ken@h/x"])
def test_a_password_with_spaces_is_not_shown_where_the_uri_is_known(uri: str) -> None:
    shown = "sftp://***@h/x" if "to" in uri else "sftp://u:***@h/x"
    assert mask_uri(uri) == mask_uri(shown) == shown
    assert mask_text(f"it says {uri}", uri) == f"it says {shown}"


secrets = st.text("abcXYZ019-_.~!$&'()*+,;=%:@", min_size=6).map(lambda text: f"Q{text}Q")


@given(st.sampled_from(["s3", "https", "sftp"]), secrets, secrets, st.booleans())
def test_no_secret_is_ever_shown(scheme: str, password: str, query: str, chained: bool) -> None:
    uri = f"{'zip://a/b.csv::' if chained else ''}{scheme}://user:{password}@host/path?{query}"
    for text in (mask_uri(uri), mask_text(f"failed: {uri}", uri), mask_text(f"failed: {uri} twice")):
        assert password not in text
        assert query.strip("':;,.)") not in text or "'" in query  # a quote may end a URI in a text
    assert query not in mask_uri(uri)


odd = st.text("19/?#@:&=+%[]", min_size=1, max_size=12)


@example("s3", [":", "::"], False)
@example("s3", ["::", "::", "://"], True)
@given(st.sampled_from(["s3", "https", "sftp"]), st.lists(odd, min_size=2, max_size=4), st.booleans())
def test_no_part_of_a_password_is_ever_shown(scheme: str, parts: list[str], queried: bool) -> None:
    password = "".join(f"{part}PASSWORD{number}" for number, part in enumerate(parts))
    uri = f"{scheme}://user:{password}@host/path{'?a=b' * queried}"
    for text in (mask_uri(uri), mask_text(f"failed: {uri}", uri), mask_text(f"failed: ({uri}) twice")):
        assert "PASSWORD" not in text
        assert text.replace("***", "").replace("host/path", "").count("/") == 2  # not what is before, either
    assert mask_uri(mask_uri(uri)) == mask_uri(uri)


@pytest.mark.parametrize("path", ["a/b", "a::b", "file:x", "a:b/c", "1s3://x".replace("//", "/"), "{uri}"])
def test_names_of_files_are_no_uris(path: str) -> None:
    assert not is_uri(path)
    assert parts_of(path)


@given(st.text("az0:/.+-"))
def test_no_uri_could_be_a_file_of_the_job(text: str) -> None:
    if is_uri(text):
        with pytest.raises(BadFileName):
            parts_of(text)


def test_a_uri_has_parts() -> None:
    assert parts_of_uri("S3://bucket/k") == (UriPart("s3", "bucket/k"),)
    chain = (UriPart("zip", "a.csv"), UriPart("simplecache", ""), UriPart("file", "/x%20y.zip"))
    assert parts_of_uri("zip://a.csv::simplecache::file:///x%20y.zip") == chain
    assert path_of(chain[-1]) == "/x y.zip"
    assert path_of(UriPart("file", "localhost/x")) == "/x"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("zip://a.csv", "does not say in what"),
        ("zip://a::/etc/x.zip", "has no scheme"),
        ("zip://a::zip", "has no scheme"),
        ("s3://u:Secret::x::y@h/x", "has :: elsewhere"),
        ("dir::file:///x", "dir:: cannot begin a chain"),
        ("filecache::file:///x", "filecache:: cannot begin a chain"),
        ("reference://::file:///x", "reference:: cannot begin a chain"),
        ("git://x", "git:// is not for data"),
        ("reference://x", "reference:// is not for data"),
        ("file://x/y", "named by its whole path"),
        ("zip://a::local://x", "named by its whole path"),
        ("file:///x\0", "is no URI"),
        ("s3://" + "x" * 8000, "is no URI"),
        ("zip://a::file://u:Secret@h/x", r"u:\*\*\*@h/x: a file is named"),
    ],
)
def test_a_uri_that_cannot_be_used_says_why(uri: str, why: str) -> None:
    with pytest.raises(BadUri, match=why) as caught:
        parts_of_uri(uri)
    assert "Secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "pattern", "below", "name"),
    [
        ("a/*.txt", "a/*.txt", "a/x.txt", "x.txt"),
        ("./", "./", "a/x", "a/x"),
        ("a/", "a/", "a/b/x", "b/x"),
        ("s3://b/k", "", "s3://b/d/k", "k"),
        ("s3://b/k?v=1", "", "s3://b/k?v=1", "k?v=1"),
        ("s3://b/*.csv", "s3://b/*.csv", "s3://b/x.csv", "x.csv"),
        ("s3://b/d/", "s3://b/d/", "s3://b/d/e/x", "e/x"),
        ("https://h/*.csv?q=*", "", "https://h/d/x%20y?q=1/2", "x y"),
        ("https://h/", "", "https://h/", ""),
        ("file:///d/", "file:///d/", "file:///d/e/x%20y", "e/x y"),
        ("zip://*.csv::https://h/z", "zip://*.csv", "zip://x%20.csv::https://h/z", "x%20.csv"),
        ("zip::https://h/z?q", "zip://", "zip://d/x::https://h/z?q", "d/x"),
        ("simplecache::s3://b/*", "", "simplecache::s3://b/x", "x"),
    ],
)
def test_some_stand_for_several_files_and_each_has_a_name(
    path: str, pattern: str, below: str, name: str
) -> None:
    assert set_of(path) == pattern
    assert file_name(below, pattern) == name


def test_names_are_quoted_where_uris_are() -> None:
    assert [name_in_uri(f"{each}x/", "a b") for each in ("file:///", "https://", "s3://", "")] == [
        "a%20b",
        "a%20b",
        "a b",
        "a b",
    ]


def test_values_have_no_meaning_in_patterns_and_are_whole_in_uris() -> None:
    stage = Stage(gather=(Gather("in/", ("d/{x}*", "https://h/{x}")),))
    assert stage.plan(1, {}, {"x": ["a?b", "c"]}).gather[0].sources == (
        *("d/a[?]b*", "d/c*"),
        *("https://h/a?b", "https://h/c"),
    )


def test_of_a_very_long_word_with_uris_nothing_is_shown() -> None:
    text = f"no file at {'://a:' * 20_000} today, s3://key:secret@bucket/x"
    assert mask_text(text) == "no file at ://*** today, s3://key:***@bucket/x"
