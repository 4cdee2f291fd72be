"""Records of the journal of a job as bytes: the payloads of its frames."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.credentials import Pairs, SealedSettings, seal_settings
from gspc_trio.components.job.journal import JournalRecord, Outcomes, Reusable, Snapshot, Step, Values
from gspc_trio.components.job.task_key import Key
from gspc_trio.core.ids import TaskId
from gspc_trio.records.journal_frames import BadJournal
from gspc_trio.workflow.ports import PortMoved
from gspc_trio.workflow.tokens import Plain

MAGIC = b"GSPCJ1\r\n"

_SNAPSHOT, _OUTCOMES, _STEP, _ABOUT, _REUSABLE, _MOVED = range(6)


class About(Struct, frozen=True):
    """Whose journal it is: the first record of each file.

    Attributes:
        version: of the package that wrote it.
        file: path of the workflow file.
        fingerprint: of the workflow file and of the sources that it imports from its directory.
        settings: texts ``name=value`` for ``workflow()``, without their credentials.
        options: of the run: plain data.
        identities: of the code of its transitions; empty if nobody has noted it.
        version_number: how often the workflow has changed.
        stand_ins, salt: of credentials, see :class:`~gspc_trio.components.job.credentials.SealedSettings`.
    """

    version: str
    file: str
    fingerprint: str
    settings: tuple[str, ...]
    options: dict[str, Plain]
    identities: dict[str, bytes] = {}
    version_number: int = 0
    stand_ins: tuple[tuple[bytes, ...], ...] = ()
    salt: bytes = b""

    @property
    def sealed(self) -> SealedSettings:
        """Its settings, and what stands for their credentials."""
        return SealedSettings(self.settings, self.stand_ins, self.salt)

    def with_settings(self, settings: Sequence[str], salt: bytes) -> tuple[About, Pairs]:
        """Return the same with these settings, without their credentials, and what stands for these."""
        sealed, pairs = seal_settings(settings, salt)
        told = {"settings": sealed.shown, "stand_ins": sealed.stand_ins, "salt": sealed.salt}
        return replace(self, **told), pairs


def encode_outcomes(rows: Sequence[tuple[TaskId, Values]], keys: Sequence[Key]) -> bytes:
    """Return the payload of :class:`~gspc_trio.components.job.journal.Outcomes` with these rows and keys."""
    return bytes(msgpack.packb((_OUTCOMES, rows, keys), unicode_errors="surrogatepass"))


def encode_record(record: JournalRecord | About) -> bytes:
    """Return the payload of a record."""
    if isinstance(record, Outcomes):
        return encode_outcomes(record.rows, record.keys)
    if isinstance(record, Step):
        step = (_STEP, record.injected, record.pulled, record.exhausted)
        more = (record.fired, record.turned, record.searching)
        said = max((place for place, one in enumerate(more, 1) if one), default=0)
        return bytes(msgpack.packb((*step, *more[:said]), unicode_errors="surrogatepass"))
    if isinstance(record, PortMoved):
        moved = (_MOVED, record.port, record.what, record.values, record.count)
        return bytes(msgpack.packb(moved, unicode_errors="surrogatepass"))
    if isinstance(record, Snapshot):
        return bytes(msgpack.packb((_SNAPSHOT, record.state)))
    if isinstance(record, Reusable):
        reusable = (_REUSABLE, record.rows, record.keys, record.taken)
        return bytes(msgpack.packb(reusable, unicode_errors="surrogatepass"))
    fields = (
        *(record.version, record.file, record.fingerprint, record.settings, record.options),
        *(record.identities, record.version_number, record.stand_ins, record.salt),
    )
    return bytes(msgpack.packb((_ABOUT, *fields), unicode_errors="surrogatepass"))


def decode_record(payload: bytes) -> JournalRecord | About:
    """Return the record of a payload.

    Raises:
        BadJournal: it has none.
    """
    size = len(payload)
    try:
        kind, *fields = msgpack.unpackb(
            payload,
            use_list=False,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size,
            max_ext_len=0,
        )
        if kind == _OUTCOMES:
            return Outcomes(*fields)
        if kind == _STEP:
            return Step(*fields)
        if kind == _SNAPSHOT:
            return Snapshot(*fields)
        if kind == _ABOUT:
            return About(*fields)
        if kind == _REUSABLE:
            return Reusable(*fields)
        if kind == _MOVED:
            return PortMoved(*fields)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadJournal(f"a record that is none: {error}") from error
    raise BadJournal(f"a record of an unknown kind: {kind!r}")
