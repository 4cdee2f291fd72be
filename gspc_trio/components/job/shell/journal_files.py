"""Files of the journal of a job: what they say, large values, and a note beside them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgpack

from gspc_trio.components.job.credentials import Pairs, SecretsGone, UriSecrets, open_settings, seal, unseal
from gspc_trio.components.job.journal import JournalRecord, Outcomes, Reusable
from gspc_trio.components.job.journal_bytes import MAGIC, About, decode_record
from gspc_trio.records.journal_frames import BadJournal, Framer, Frames
from gspc_trio.records.shell.durable_files import THIS_MACHINE, append, put_in_place
from gspc_trio.records.shell.journal_files import JournalFiles, journals_in, names_of
from gspc_trio.records.shell.own_directory import own_directory

_VALUE = "value."
_NOTE = "job"
_SECRETS = "secrets"
_SECRETS_MAGIC = b"GSPCK1\r\n"


class JournalError(ValueError):
    """The journal cannot be used; one line says why, and what to do."""


class JournalDirectory(JournalFiles):
    """Where the journal of a job lies; its name is for ``gspc-jobserver resume``, too.

    Files of before stay as long as they have results that are nowhere else: a changed workflow may want them.

    Attributes:
        given: settings that have credentials, for what is read.
        pairs: credentials that are not to be written, and what stands for them.
    """

    given: Sequence[str] = ()
    pairs: Pairs = ()
    _uris: UriSecrets | None = None
    _secrets: tuple[Framer, int] | None = None

    def sealed(self, payload: bytes | memoryview, *, uris: bool = True) -> bytes | memoryview:
        """Return bytes as the journal has them: without credentials, which are durable then.

        Args:
            payload: what is to be written.
            uris: whether URIs in it may have secrets; else only settings have.

        Raises:
            OSError: the disk does not take these.
        """
        if self.pairs:
            payload = seal(bytes(payload), self.pairs)
        if not uris:
            return payload
        known = self.uri_secrets()
        payload = known.seal(payload)
        if new := known.take_new():
            if self._secrets is None:  # the file may end with a part of what was not needed any more
                framer, new = Framer(_SECRETS_MAGIC), known.known()
                path, data = self._directory / _SECRETS, _SECRETS_MAGIC + _frames(framer, new)
                self._secrets = framer, put_in_place(self._files, path, data)
            else:
                framer, descriptor = self._secrets
                append(self._files, descriptor, _frames(framer, new))
        return payload

    def unsealed(self, payload: bytes, pairs: Pairs) -> bytes:
        """Return bytes of the journal as they were.

        Raises:
            SecretsGone: what stands in them for passwords is not known.
            OSError: these cannot be read.
        """
        return unseal(self.uri_secrets().unseal(payload), pairs)

    def uri_secrets(self) -> UriSecrets:
        """Return the secrets of URIs that a workflow has made. Raises OSError if they cannot be read."""
        if self._uris is None:
            known = []
            if _SECRETS in self._files.names(self._directory):
                frames = Frames(self._files.read(self._directory / _SECRETS), _SECRETS_MAGIC)
                known = [msgpack.unpackb(payload, use_list=False) for payload in frames]
            self._uris = UriSecrets(secrets.token_bytes, known)
        return self._uris

    def close(self) -> None:
        """Append no more."""
        super().close()
        if self._secrets is not None:
            self._files.close(self._secrets[1])
            self._secrets = None

    def note(self, text: str) -> None:
        """Keep a small text beside the journal, in place of the one before; durable on return.

        Raises:
            OSError: the disk does not take it.
        """
        self._files.close(put_in_place(self._files, self._directory / _NOTE, text.encode()))

    def noted(self) -> str:
        """Return that text. Raises OSError if there is none."""
        return self._files.read(self._directory / _NOTE).decode()

    def values(self) -> list[str]:
        """Return the names of the files that are large values."""
        return names_of(self._files, self._directory, _VALUE)

    def put_value(self, name: str, data: bytes | memoryview) -> None:
        """Keep a large value under a name; durable on return. Raises OSError if the disk does not take it."""
        self._files.close(put_in_place(self._files, self._directory / name, self.sealed(data)))

    def read_value(self, name: str) -> bytes:
        """Return it. Raises OSError if it is not there."""
        return self.unsealed(self._files.read(self._directory / name), self.pairs)

    def remove_value(self, name: str) -> None:
        """Remove it, if it is there. Raises OSError if that cannot be."""
        self._files.remove(self._directory / name)


def has_journal(directory: Path) -> bool:
    """Whether there is a journal in a directory."""
    return bool(journals_in(THIS_MACHINE, directory))


def locked(directory: Path) -> AbstractContextManager[None]:
    """Keep other users and job servers out of a journal's directory for the time of a block.

    Raises:
        JournalError: others can look into it, or another job server uses it.
    """
    return own_directory(directory, "a job server that runs uses the journal", JournalError)


def read_journal(disk: JournalDirectory) -> tuple[About, list[JournalRecord]]:
    """Return what the newest whole file says.

    Raises:
        JournalError: there is none.
    """
    problem = "it has no file"
    for name, read in disk.read():
        try:
            about, records = _parse(read(), disk)
            if records:
                return about, records
            problem = f"{name} has no beginning"
        except SecretsGone as error:
            raise JournalError(
                f"{disk.name} is no journal to go on with: {error}; they are in its file {_SECRETS}"
            ) from error
        except ValueError as error:
            problem = f"{name}: {error}"
        except OSError as error:
            problem = f"{name}: {error.strerror}"
    raise JournalError(f"{disk.name} is no journal to go on with: {problem}")


def read_earlier(disk: JournalDirectory, version_number: int) -> Iterator[list[JournalRecord]]:
    """Return what the files of before say that are of this version of the workflow, the oldest first."""
    for _, read in disk.read_earlier():
        with suppress(ValueError, OSError):  # tasks whose results cannot be read are run again
            about, records = _parse(read(), disk)
            if about.version_number == version_number:
                yield records


def _frames(framer: Framer, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(framer.frame(msgpack.packb(pair)) for pair in pairs)


def _parse(data: bytes, disk: JournalDirectory) -> tuple[About, list[JournalRecord]]:
    """Return what a file says, with the credentials of settings that are given.

    Raises:
        BadJournal: it is none, or has no beginning.
        SecretsGone: it has stand-ins of what is not known.
        OSError: that cannot be read.
    """
    about: About | None = None
    records: list[JournalRecord] = []
    pairs: Pairs = ()
    for payload in Frames(data, MAGIC):
        record = decode_record(disk.unsealed(payload, pairs))
        if isinstance(record, About):
            about = record
            if about.salt:
                _, pairs, _ = open_settings(about.sealed, disk.given)
        else:
            records.append(record)
    if about is None:
        raise BadJournal("it has no beginning")
    return about, records


def has_results(records: list[JournalRecord]) -> bool:
    """Whether there are results in a file."""
    return any(isinstance(record, Outcomes | Reusable) for record in records)
