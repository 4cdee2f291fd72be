"""URIs of data: what one is, what it is made of, and how it is shown without its secrets.

A URI may be a chain, as fsspec has them: ``zip://a.csv::https://host/all.zip`` is a file of an archive that
lies elsewhere.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import quote, unquote

from msgspec import Struct

from gspc_trio.core.file_sets import HERE, is_directory, is_glob

URI_BYTES_MAX = 8000
"""Longest URI."""

CACHE = "simplecache"
WRAPPERS = ("zip", "tar", "libarchive", CACHE)
"""What a chain may begin with: they only see what the rest of the chain gives them."""

FILE_SCHEMES = ("file", "local")
HTTP_SCHEMES = ("http", "https")

_REFUSED = frozenset(
    {
        *(
            "async_wrapper",
            "asynclocal",
            "asyncwrapper",
            "blockcache",
            "cached",
            "dask",
            "data",
            "dir",
            "dvc",
        ),
        *("filecache", "generic", "git", "jlab", "jupyter", "memory", "pyscript", "reference"),
    }
)
"""Schemes that lead to files of the host by ways of their own, or to what no other process sees."""

_SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*"
# They are compiled when the first URI comes: most jobs have none.
_URI = rf"(?:{_SCHEME}::)*{_SCHEME}://"
_JOINT = rf"::(?=(?:{_SCHEME}(?:://[^@]*)?::)*{_SCHEME}://)"
_PART = rf"(?s:({_SCHEME})(?:://(.*))?)"
_WRAPPER = rf"(?s:((?:{'|'.join(WRAPPERS)})(?:://[^@]*?)?)::(?={_URI}))"

# A name, a colon and a password up to the last @, for a password may have any character. If that @ comes
# after a question mark or a hash, it may be part of the query instead: all behind the colon is hidden. Or a
# lone secret in front of an @. A colon of an address in brackets or of a chain is none; only what a chain may
# begin with has one behind it.
_NO_WRAPPER = "".join(f"(?<!{name})" for name in WRAPPERS)
_NAME = rf"(?:{_NO_WRAPPER}|(?!://[^/?#@:\s\[]*::{_URI}))://([^/?#@:\s\[]*:)"
_UNSURE = rf"{_NAME}[^\s?#]*[?#]\S*@"
_USER = rf"(?:{_NAME}\S*@|://[^\s/?#:@]*@(?:[^\s/?#]*@)?)"
_END = r"(?:[^\s'\"]*[^\s'\":;,.)])?"
_QUERY = r"(://[^\s?#'\"]*)([?#])(?!\*\*\*)[^\s'\"]*[^\s'\":;,.)]"
_LONG = r"://\S{2000,}"  # nobody reads it, and looking for the parts of it takes the square of its length
MASKED = "***"
"""What stands in a text for what is not shown."""


class BadUri(ValueError):
    """A URI cannot be used; the message is one line for people, without its secrets."""


class UriPart(Struct, frozen=True):
    """A part of a chain.

    Attributes:
        scheme: in lower case.
        rest: what is behind ``://``; "" for none.
    """

    scheme: str
    rest: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.rest}"


def is_uri(text: str) -> bool:
    """Return whether a text is a URI; no path of a file on the host of a job is one."""
    return "://" in text and re.match(_URI, text) is not None


def parts_of_uri(uri: str) -> tuple[UriPart, ...]:
    """Return the parts of a URI: one, or those of a chain, the outermost first.

    Raises:
        BadUri: it cannot be used.
    """
    if len(uri.encode("utf-8", "surrogatepass")) > URI_BYTES_MAX or "\0" in uri:
        raise BadUri(
            f"{mask_uri(uri)[:100]} is no URI: it is longer than {URI_BYTES_MAX} bytes, or has a NUL"
        )
    parts = []
    for text in re.split(_JOINT, uri):
        found = re.fullmatch(_PART, text)
        if found is None or "::" in text:
            raise BadUri(
                f"{mask_uri(uri)} is no URI: a part of its chain has no scheme, or it has :: elsewhere"
            )
        parts.append(UriPart(found[1].lower(), found[2] or ""))
    *wrappers, last = parts
    wrong = next((part for part in wrappers if part.scheme not in WRAPPERS), None)
    if wrong is not None:
        there = ", ".join(f"{name}::" for name in WRAPPERS)
        raise BadUri(f"{mask_uri(uri)}: {wrong.scheme}:: cannot begin a chain; there are: {there}")
    if last.scheme in WRAPPERS:
        raise BadUri(f"{mask_uri(uri)} does not say in what: write {last.scheme}://NAME::URI")
    if last.scheme in _REFUSED:
        raise BadUri(f"{mask_uri(uri)}: {last.scheme}:// is not for data of tasks")
    if last.scheme in FILE_SCHEMES:
        path_of(last)
    return tuple(parts)


def path_of(part: UriPart) -> str:
    """Return the path that a part with ``file://`` stands for.

    Raises:
        BadUri: it is not a whole path of this host.
    """
    path = unquote(part.rest.removeprefix("localhost"), errors="surrogateescape")
    if not path.startswith("/") or "\0" in path:
        raise BadUri(f"{mask_uri(str(part))}: a file is named by its whole path, file:///DIRECTORY/NAME")
    return path


def unfinished(path: str, temporary: str) -> str:
    """Return what a file of a host is called while it is written, where it cannot be without a name.

    Args:
        path: of the file.
        temporary: the directory for what the one transfer keeps meanwhile; no other has it.
    """
    way, _, name = path.rpartition("/")
    mark = blake2b(temporary.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return f"{way}/.{name[:100]}.{mark}"


def set_of(path: str) -> str:
    """Return the pattern, or the directory with its slash, by which a path or URI stands for several files.

    In a chain that is its first part, for only that has names of files. "" for what stands for one file; with
    HTTP that is everything, as it is for a cache.
    """
    if not is_uri(path):
        return path if is_glob(path) or is_directory(path) else ""
    first = path.split("::")[0]
    scheme, _, rest = first.partition("://")
    if scheme.lower() in HTTP_SCHEMES or scheme.lower() == CACHE:
        return ""
    if not rest and scheme.lower() in WRAPPERS:
        return f"{scheme}://"
    return first if "*" in rest or is_directory(rest) else ""


def file_name(path: str, pattern: str = "") -> str:
    """Return the name of the file that a path or URI stands for, "" if it has none.

    Args:
        path: of the file.
        pattern: that it matches, see :func:`set_of`. Below a directory the name has directories, too.
    """
    quoted = False
    if is_uri(path):
        parts = path.split("::")
        path = parts[0] if "://" in parts[0] else parts[-1]
        scheme = path.partition("://")[0].lower()
        quoted = scheme in (*HTTP_SCHEMES, *FILE_SCHEMES)
        if scheme in HTTP_SCHEMES:
            path = re.split(r"[?#]", path, maxsplit=1)[0].partition("://")[2].partition("/")[2]
    name = path.rpartition("/")[2]
    if is_directory(pattern):
        name = path if pattern == HERE else path[len(pattern) :]
    return unquote(name, errors="surrogateescape") if quoted else name


def name_in_uri(uri: str, name: str) -> str:
    """Return how a file is called in a URI that is made of one."""
    quoted = uri.partition("://")[0].lower() in (*HTTP_SCHEMES, *FILE_SCHEMES)
    return quote(name, errors="surrogateescape") if quoted else name


def mask_uri(text: str) -> str:
    """Return a URI as it is shown: without password, query and fragment. What is no URI stays as it is."""
    if not is_uri(text):
        return text
    parts = []
    while found := re.match(_WRAPPER, text):
        parts.append(found[1])
        text = text[found.end() :]
    return "::".join(map(_mask_part, (*parts, text)))


def _mask_part(part: str) -> str:
    unsure, user = (  # nothing else is there, so spaces are the password's
        pattern.replace(r"\S", ".").replace(r"\s", "") for pattern in (_UNSURE, _USER)
    )
    shown = re.sub(f"{unsure}.*", rf"://\1{MASKED}", part, count=1, flags=re.DOTALL)
    shown = re.sub(user, _mask_user, shown, count=1, flags=re.DOTALL)
    return re.sub(r"([?#]).+", rf"\1{MASKED}", shown, count=1, flags=re.DOTALL) if "://" in shown else shown


def _mask_user(found: re.Match[str]) -> str:
    return f"://{found[1] or ''}{MASKED}@"


def mask_text(text: str, *known: str) -> str:
    """Return a text for people with the URIs in it masked.

    Args:
        text: that may have some.
        known: URIs that are likely there; each is found whatever characters it has.
    """
    if "://" not in text:
        return text
    for uri in known:
        text = text.replace(uri, mask_uri(uri))
    text = re.sub(_LONG, f"://{MASKED}", text)
    text = re.sub(_UNSURE + _END, rf"://\1{MASKED}", text)
    text = re.sub(_USER, _mask_user, text)
    return re.sub(_QUERY, rf"\1\2{MASKED}", text)
