"""The scoped object for an application's own trio main (APP-5) on which jobs run: a run-time system."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import trio
from msgspec.structs import replace

from gspc_trio.components.provision.shell.hardware import discover_hardware
from gspc_trio.components.provision.strategy import EMBEDDED, RifOrder, Strategy, ends_in_s
from gspc_trio.components.rif.shell.service import open_rif
from gspc_trio.components.rts.shell.client import Home, RunTimeSystem, join_rts
from gspc_trio.components.rts.shell.several import (
    ConnectionFiles,
    join_several,
)
from gspc_trio.components.rts.shell.system import RtsOptions, RtsSettings, open_system
from gspc_trio.components.worker.messages import ProcessKey
from gspc_trio.components.worker.shell.compute import ComputeBackend, open_process_backend
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.core.ids import RifId
from gspc_trio.core.imports import refuse_in_imports_of_tasks
from gspc_trio.core.resources import Resource, checked_cores, parse_features, with_features
from gspc_trio.iml.quota import Quota
from gspc_trio.nursery.connections.connection_file import (
    ConnectionInfo,
    remove_connection_file,
    write_connection_file,
)
from gspc_trio.nursery.connections.network import LOOPBACK, Network, address_towards, outward_address
from gspc_trio.nursery.scopes.loop import real_time, require_trio
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.listening import BadSetting, check_bytes

if TYPE_CHECKING:
    from gspc_trio.components.provision.staging import StagingSettings

RTS_ADDRESS = "memory:rts"

Discover = Callable[[RifId, int], tuple[Resource, ...]]


@asynccontextmanager
async def open_rts(
    *,
    cores: int = 0,
    host: str = "",
    connection_file: ConnectionFiles | None = None,
    publish: Path | str | None = None,
    data_bytes: int = 0,
    spill_bytes: int = 0,
    spill_directory: str = "",
    strategies: Mapping[str, Strategy] | None = None,
    **settings: Unpack[RtsOptions],
) -> AsyncIterator[RunTimeSystem]:
    """A run-time system for as long as the block runs.

    Trio's clock shows real time in it, also the autojump clock of a test, for real processes work in it.

    Args:
        cores: number of cores that each host offers; 0 for what it has and this process may use.
        host: name of this host in reports; "" for its own.
        connection_file: join the running RTS that published this file instead of starting one; several of
            them, name -> file, for jobs on all of these.
        publish: file in which to publish how to reach the RTS that is started, for gspc-top and other
            clients; None: nobody outside this process can.
        data_bytes: shared memory of a memory layer for large values; 0: they travel with the tasks.
        spill_bytes: what memory servers may keep on disk when their memory is full; 0: nothing.
        spill_directory: where; "" for the system's directory for temporary files.
        strategies: ways to start hosts beside the usual ones, name -> object.
        settings: the other fields of ``RtsSettings``. The strategy is ``embedded`` by default: hosts are in
            this process. Without ``listen``, and anything that needs it, the RTS listens nowhere.

    Raises:
        BadSetting: a setting cannot be used.
        CertificateError, StateError: certificates or state cannot be used.
        ConnectionFileError: the file is missing, unsafe or not a connection file, or cannot be written.
        ConnectFailed: no RTS answers at the address in the file.
        LocationError: a name cannot be used, or two name the same one.
        LayerGone: the memory layer did not start.
        NoRoom: this host has not so much memory for it, or cannot spill to that directory.
        NotInTrio: this is no task of trio, but of asyncio for example.
        OSError: it cannot listen there.
        RtsError: no host came up.
        StartedAtImport: a compute process is importing the module that calls this.
        TypeError: the number of cores is no whole number; there is no such setting.
        ValueError: it is negative, or a setting has no meaning beside a ``connection_file``.
    """
    require_trio("open_rts")
    refuse_in_imports_of_tasks()
    _refuse_unknown(settings)
    here = host or socket.gethostname()
    wanted = RtsSettings(cores=checked_cores(cores), spill_bytes=spill_bytes, spill_directory=spill_directory)
    sites = settings.get("sites")
    first = () if sites is not None and not cores else (here,)  # nothing is computed here unless it is said
    wanted = replace(wanted, **({"hosts": first, "strategy": EMBEDDED} | settings))
    if sites is not None and "listen" not in settings:
        address = outward_address()
        wanted = replace(wanted, listen=address, tls=wanted.tls or address != LOOPBACK)
    host = host or (wanted.hosts[0] if wanted.strategy == EMBEDDED and wanted.hosts else here)
    quota = _quota(data_bytes, spill_bytes, spill_directory)
    with real_time():
        if connection_file is not None:
            of_its_own = {"cores": cores, "publish": publish, "strategies": strategies}
            _refuse_settled([*settings, *(name for name, value in of_its_own.items() if value)])
            opened = _joined(connection_file)
        else:
            opened = _own_rts(wanted, publish, "listen" in settings, strategies or {})
        async with opened as rts, _with_data(rts, host, quota), _as_home(rts):
            yield rts


def _joined(files: ConnectionFiles) -> AbstractAsyncContextManager[RunTimeSystem]:
    return join_rts(Path(files)) if isinstance(files, str | Path) else join_several(files)


def _refuse_unknown(settings: Iterable[str]) -> None:
    unknown = sorted(set(settings).difference(RtsSettings.__struct_fields__))
    if unknown:
        raise TypeError(f"open_rts has no setting {unknown[0]!r}")


def _refuse_settled(settings: Sequence[str]) -> None:
    if settings:
        raise ValueError(
            f"{settings[0]} is settled by the run-time system that runs already, that of connection_file: "
            "leave it out"
        )


@asynccontextmanager
async def open_prepared_rts(
    started: StartedTemplate, *, cores: int, data_bytes: int
) -> AsyncIterator[RunTimeSystem]:
    """As :func:`open_rts` with these arguments, for who has started a template before.

    It stays the caller's until compute processes are wanted.
    """
    here, quota = socket.gethostname(), _quota(data_bytes)
    settings = RtsSettings(cores=cores, hosts=(here,), strategy=EMBEDDED)
    with real_time():
        opened = _own_rts(settings, None, False, {}, started)
        async with opened as rts, _with_data(rts, here, quota), _as_home(rts):
            yield rts


def _quota(data_bytes: int, spill_bytes: int = 0, spill_directory: str = "") -> Quota:
    check_bytes("data_bytes", data_bytes)
    return Quota(data_bytes, spill_bytes, spill_directory)


@asynccontextmanager
async def _as_home(rts: RunTimeSystem) -> AsyncIterator[None]:
    """Let executors of other threads have their jobs here while the block runs; then they are stopped."""
    async with open_scope() as nursery:
        rts.home = Home(trio.lowlevel.current_trio_token(), nursery)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _own_rts(
    settings: RtsSettings,
    publish: Path | str | None,
    listens: bool,
    strategies: Mapping[str, Strategy],
    started_template: StartedTemplate | None = None,
) -> AsyncIterator[RunTimeSystem]:
    """A run-time system in this process for as long as the block runs."""
    settings = settings.checked()
    if settings.tls and publish is None and settings.state is None and settings.sites is None:
        why = "certificates are kept beside the file to publish, or in the state: give one of them"
        raise BadSetting("tls", True, why)
    listens = listens or publish is not None or settings.strategy != EMBEDDED
    listens = listens or bool(settings.port or settings.tls or settings.state or settings.sites)
    async with open_process_backend(started_template, settings.host_options().get("io", "off")) as backend:
        backend.prepare()
        with _certificates(settings, publish) as folder:
            async with open_system(
                settings,
                tls_folder=folder,
                listen=(RTS_ADDRESS,),
                only=not listens,
                is_attended=False,
                strategies=lambda network: {EMBEDDED: EmbeddedStrategy(network, backend), **strategies},
            ) as started:
                network, outside = started.network, started.info.address if listens else ""
                connection = network.connect(RTS_ADDRESS, role="control", name="application", expect="rts")
                async with connection as peer:
                    with published(publish, started.info):
                        is_published = publish is not None
                        yield RunTimeSystem(
                            network, RTS_ADDRESS, peer, published=is_published, outside=outside
                        )


@contextmanager
def _certificates(settings: RtsSettings, publish: Path | str | None) -> Iterator[Path]:
    """Name the directory of certificates: that of the file to publish, or one that nobody needs later."""
    if publish is not None or settings.sites is None:
        yield Path(publish or ".").parent
        return
    from tempfile import TemporaryDirectory  # only here: few have sites

    with TemporaryDirectory(prefix="gspc-trio-") as folder:
        yield Path(folder)


@asynccontextmanager
async def _with_data(rts: RunTimeSystem, host: str, quota: Quota) -> AsyncIterator[None]:
    """Let jobs keep large values in a memory layer while the block runs; not if it has no bytes."""
    if not quota.memory_bytes:
        yield
        return
    from gspc_trio.iml.shell.arena import arena_at, arena_of
    from gspc_trio.iml.shell.server_process import open_server_process

    listen = address_towards(rts.outside) if rts.outside else ""
    arena = arena_of(rts) if rts.embedded else arena_at(rts.network, rts.address)
    async with arena(host, secrets.token_hex(4), quota.memory_bytes) as told:
        quota = quota if quota.spill_bytes else told
        server = open_server_process(host, quota, listen=listen, credentials=rts.network.credentials)
        async with server as started:
            rts.data = started.layer
            yield


@contextmanager
def published(path: Path | str | None, info: ConnectionInfo) -> Iterator[None]:
    """Publish how to reach a service of this process while the block runs; not if there is no path."""
    if path is None:
        yield
        return
    write_connection_file(Path(path), info)
    try:
        yield
    finally:
        remove_connection_file(Path(path), info)


def process_key() -> ProcessKey:
    """Return the key by which tasks may speak to this process's managers (``multiprocessing.Manager``)."""
    from multiprocessing.process import current_process  # only here: a process without a job needs none

    return ProcessKey(bytes(current_process().authkey))


def _files(options: Mapping[str, str]) -> StagingSettings | None:
    """Return how files get to the tasks of a host in this process, None for the usual way."""
    if "allow_files" not in options:
        return None
    from gspc_trio.components.provision.staging import staging_settings

    return staging_settings(options)


class EmbeddedStrategy:
    """Runs RIFs in this process, reached over memory, and by jobs of other processes as their RTS is.

    Args:
        network: in which RTS and RIFs listen.
        backend: computes what the RIFs' workers are given.
        discover: ``discover(rif_id, cores)`` returns what a host has.
    """

    def __init__(
        self, network: Network, backend: ComputeBackend, discover: Discover = discover_hardware
    ) -> None:
        self._network = network
        self._backend = backend
        self._discover = discover

    async def run(self, order: RifOrder) -> str:
        """Run the RIF until it ends or this is cancelled."""
        rts = order.rts_address("memory:")
        outside = [address for address in order.rts_addresses if not address.startswith("memory:")]
        features = parse_features(order.options.get("features", ""))
        hardware = with_features(self._discover(order.rif_id, order.cores), features)
        async with open_rif(
            self._network,
            rif_id=order.rif_id,
            incarnation=order.incarnation,
            host=order.host,
            hardware=hardware,
            backend=self._backend,
            listen=f"memory:{order.rif_id}.{order.incarnation}",
            rts=rts,
            ends_in_s=ends_in_s(order.options),
            outside=address_towards(outside[0]) if outside else "",
            files=_files(order.options),
        ) as rif:
            reason: str = await rif.wait_ended()
            return reason
