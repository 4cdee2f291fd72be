"""The files of a cache of results: one directory, a file for each entry, no locks.

An entry is written under another name and then renamed, so that nobody ever sees half of one; what is damaged
is not there. Its modification time says when it was last used.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gspc_trio.components.job.cache import (
    CacheEntry,
    CacheError,
    Key,
    decode_entry,
    encode_entry,
)
from gspc_trio.core.code_identity import IDENTITY_BYTES
from gspc_trio.records.shell.durable_files import THIS_MACHINE, make_directories
from gspc_trio.records.shell.own_directory import why_no_directory

TAG = "CACHEDIR.TAG"
_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# Results that gspc-trio has computed. It can be removed at any time: gspc-jobserver cache clear DIR
"""
_OURS = b"gspc-trio"
"""Other programs mark their caches by such a file, too."""

LEFT_BEHIND_S = 3600.0
"""After so long a file that was begun and has no name yet belongs to nobody."""

KEPT_SHARE = 0.9
"""When there is too much, entries go until this part of what may be there is left."""

_ENTRY = re.compile(rf"[0-9a-f]{{{2 * IDENTITY_BYTES}}}")
_BEGUN = re.compile(r"\.begun-[0-9a-f]{32}")


class EntryFile(Struct, frozen=True):
    """An entry that lies in a cache.

    Attributes:
        name: of its file.
        size_bytes: of its file.
        used_s: when it was last used, in seconds since 1970.
    """

    name: str
    size_bytes: int
    used_s: float


class CacheDirectory:
    """A directory with entries.

    Args:
        directory: where.
        make: make it if it is not there.

    Raises:
        CacheError: it belongs to somebody else, or others have access to it; it holds other files; it is not
            there, or cannot be made.
    """

    def __init__(self, directory: str | Path, *, make: bool = True) -> None:
        self.path: Path = Path(directory)
        try:
            if make:
                make_directories(THIS_MACHINE, self.path)
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise CacheError(f"there is no cache {self.path}: name the directory of one") from error
        except OSError as error:
            why = why_no_directory(self.path, error)
            raise CacheError(f"the cache {self.path} cannot be used: {why}") from error
        try:
            self._check(make)
        except BaseException:
            self.close()
            raise

    def _check(self, make: bool) -> None:
        names = os.listdir(self._descriptor)
        is_cache = TAG in names and _OURS in (self._read(TAG) or b"")
        # Another run may be about to give the tag its name, or was killed before it did.
        if not is_cache and not (make and all(map(_BEGUN.fullmatch, names))):
            raise CacheError(f"{self.path} is no cache of gspc-trio: name another directory, or a new one")
        found = os.fstat(self._descriptor)
        if found.st_uid != os.geteuid():
            raise CacheError(
                f"the cache {self.path} belongs to another user (id {found.st_uid}), and its entries are "
                "pickles, which may run any code: name another directory"
            )
        if found.st_mode & 0o077:
            raise CacheError(
                f"others have access to the cache {self.path} (mode {stat.S_IMODE(found.st_mode):04o}), and "
                f"its entries are pickles, which may run any code: chmod 700 {self.path}, or name another one"
            )
        if not is_cache:
            try:
                self._put(TAG, _TAG_TEXT)
            except OSError as error:
                raise CacheError(f"the cache {self.path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Use it no more."""
        os.close(self._descriptor)

    def get(self, key: Key) -> CacheEntry | None:
        """Return the entry of a key, None if there is none; now it was used."""
        name = key.hex()
        data = self._read(name)
        entry = None if data is None else decode_entry(data)
        if entry is not None:
            with suppress(OSError):
                os.utime(name, dir_fd=self._descriptor)
        return entry

    def look_at(self, name: str) -> CacheEntry | None:
        """Return the entry in a file, None if it is damaged or gone."""
        data = self._read(name)
        return None if data is None else decode_entry(data)

    def put(self, key: Key, entry: CacheEntry) -> int:
        """Keep an entry in place of the one of before; return its size.

        Raises:
            OSError: the disk does not take it.
        """
        data = encode_entry(entry)
        self._put(key.hex(), data)
        return len(data)

    def entries(self) -> list[EntryFile]:
        """Return what there is, what was not used for longest first."""
        found = [entry for entry in self._files() if _ENTRY.fullmatch(entry.name)]
        return sorted(found, key=lambda entry: (entry.used_s, entry.name))

    def shrink(self, size_bytes: int, now_s: float) -> int:
        """Remove what was not used for longest if there is too much; return the bytes that are left.

        Args:
            size_bytes: that there may be.
            now_s: seconds since 1970.
        """
        for file in self._files():
            if _BEGUN.fullmatch(file.name) and file.used_s < now_s - LEFT_BEHIND_S:
                self._remove(file.name)
        entries = self.entries()
        left = sum(entry.size_bytes for entry in entries)
        if left <= size_bytes:
            return left
        for entry in entries:
            if left <= KEPT_SHARE * size_bytes:
                break
            self._remove(entry.name)
            left -= entry.size_bytes
        return left

    def clear(self) -> tuple[int, int]:
        """Remove all entries; return how many there were, and their bytes."""
        entries = self.entries()
        for file in (*entries, *(file for file in self._files() if _BEGUN.fullmatch(file.name))):
            self._remove(file.name)
        return len(entries), sum(entry.size_bytes for entry in entries)

    def _files(self) -> Iterator[EntryFile]:
        for name in os.listdir(self._descriptor):
            with suppress(OSError):  # another run has removed it
                found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                yield EntryFile(name, found.st_size, found.st_mtime)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def _read(self, name: str) -> bytes | None:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=self._descriptor), "rb") as file:
                return file.read()
        except OSError:
            return None

    def _put(self, name: str, data: bytes) -> None:
        begun, where = f".begun-{secrets.token_hex(16)}", self._descriptor
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(begun, flags, 0o600, dir_fd=where)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            os.rename(begun, name, src_dir_fd=where, dst_dir_fd=where)
        except BaseException:
            self._remove(begun)
            raise
