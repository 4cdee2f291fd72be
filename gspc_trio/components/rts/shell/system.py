"""A run-time system as people start it: its settings, and a service with hosts, state and certificates.

``gspc-rts start`` and ``open_rts`` both fill in :class:`RtsSettings`, so that each can do what the other can.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.managers.messages import SHARINGS
from gspc_trio.components.monitor.io_frames import MODES
from gspc_trio.components.provision.shell.strategies import RIF_OPTIONS, LocalStrategy, find_strategies
from gspc_trio.components.provision.strategy import RifOrder, Strategy, StrategyError
from gspc_trio.components.rts.shell.host_use import HostUse
from gspc_trio.components.rts.shell.peers import RtsError
from gspc_trio.components.rts.shell.saved import RESUME_GRACE_S, SavedHost, new_state, starting_hosts
from gspc_trio.components.rts.shell.service import RtsService, SeveralManagers, open_rts_service
from gspc_trio.components.rts.state import Limits, RifState, is_of_site, site_strategy
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.resources import checked_cores, parse_features
from gspc_trio.core.similar import did_you_mean
from gspc_trio.nursery.connections.connection_file import ConnectionInfo, read_connection_file
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.placement import FIFO, bad_placement
from gspc_trio.protocol.address import WebSocketAddress, parse_address
from gspc_trio.protocol.listening import BadSetting, check_bytes, listen_address
from gspc_trio.version import VERSION

if TYPE_CHECKING:
    from gspc_trio.components.monitor.shell.collector import Collector
    from gspc_trio.components.provision.blocks import SavedSite
    from gspc_trio.components.provision.site_settings import SitesFile
    from gspc_trio.components.rm.shell.remote import Connect
    from gspc_trio.components.rm.shell.server import ManagerServer
    from gspc_trio.components.rts.shell.history_files import HistoryFiles
    from gspc_trio.components.rts.shell.state_files import StateKeeper

SitesGiven: TypeAlias = "Path | str | Mapping[str, Mapping[str, object]] | SitesFile"
"""Sites as a user gives them: a file, an address, or name -> key -> value; or as they were read."""

ON_THIS_MACHINE = ("local", "embedded")
"""Strategies whose hosts are here, and know the same options."""

MANAGERS_MAX = 64
"""Most resource managers of a run-time system."""

ANOMALY_MODES = ("off", "watch", "act")
"""What ``--anomalies`` can say: nothing is looked for; it is told; something is done about it, too."""

ANOMALY_MODE = "watch"
"""What it says if nothing is given."""

COME_BACK_S = 1.0
"""How long a run-time system that was started again looks for its RIFs before it says that it is there."""


class RtsOptions(TypedDict, total=False):
    """The settings of a run-time system that are its own alone; see :class:`RtsSettings`."""

    hosts: Sequence[str]
    strategy: str
    options: Mapping[str, str]
    port: int
    listen: str
    tls: bool
    state: Path | str | None
    placement: str
    directory: str
    allow_files: Sequence[str]
    memory_bytes: int
    rm: Path | str | None
    sites: SitesGiven | None
    managers: int
    sharing: str
    monitor: Path | str | None
    monitor_bytes: int
    topology: Path | str | None
    io: str
    anomalies: str


class RtsSettings(Struct, frozen=True):
    """Settings of a run-time system.

    Attributes:
        hosts: names of the hosts to begin with; (): this one, unless a state has others.
        strategy: how their RIFs are started.
        options: of the strategy.
        cores: number that each host offers; 0 for what it has.
        port: TCP port; 0 for any free one.
        listen: address of this host on which it listens.
        tls: encrypt all connections.
        state: directory for what the next run-time system is to know if this one crashes; None: none.
        placement: which free resource is used next by jobs that do not say: fifo, compact, fair or
            progressive.
        directory: for tasks with files; "" for that of the system for temporary files.
        allow_files: directories of which ``file://`` URIs may name files, beside the directory of each job.
        memory_bytes: shared memory that each memory server may use; 0: a quarter of the memory of its host.
        spill_bytes: disk that it may use when that is full; 0: none.
        spill_directory: for data on disk; "" for the system's directory for temporary files.
        rm: connection file of a resource manager that runs elsewhere (``gspc-rts rm``); None: begin one.
        sites: batch systems that are asked for hosts as tasks need them: a file of sites, its tables, or an
            address such as ``dask://host:8786``; None: none. With sites there is no host at the beginning
            unless ``hosts`` names some or ``cores`` says how many cores this one offers.
        managers: number of resource managers. More than one are processes of their own.
        sharing: how they share the hosts: pessimistic or optimistic.
        monitor: directory for the metrics of hosts, in a local file system; None: hosts are not measured.
        monitor_bytes: room that these metrics may take; the oldest are removed.
        topology: file that says which hosts are in which rack, a line ``RACK: HOST HOST ...`` for each.
        io: what is kept there of the reading and writing of tasks: ``off``, ``counts`` (what the kernel
            counts) or ``calls`` (sizes, durations and patterns too); "": counts.
        anomalies: what is done about anomalies of the hosts that are measured: ``off``, ``watch`` (they are
            told) or ``act`` (such hosts get nothing new for a while, too); "": watch.
    """

    hosts: Sequence[str] = ()
    strategy: str = "local"
    options: Mapping[str, str] = field(default_factory=dict)
    cores: int = 0
    port: int = 0
    listen: str = "127.0.0.1"
    tls: bool = False
    state: Path | str | None = None
    placement: str = FIFO
    directory: str = ""
    allow_files: Sequence[str] = ()
    memory_bytes: int = 0
    spill_bytes: int = 0
    spill_directory: str = ""
    rm: Path | str | None = None
    sites: SitesGiven | None = None
    managers: int = 1
    sharing: str = "pessimistic"
    monitor: Path | str | None = None
    monitor_bytes: int = 2 << 30
    topology: Path | str | None = None
    io: str = ""
    anomalies: str = ""

    def checked(self) -> RtsSettings:
        """Return the settings; a file of sites is read, and not again.

        Raises:
            BadSetting: one cannot be used.
        """
        checked_cores(self.cores)
        if wrong := bad_placement(self.placement):
            raise BadSetting("placement", self.placement, wrong)
        for name, path in (("directory", self.directory), ("spill_directory", self.spill_directory)):
            if path and not os.path.isdir(path):
                raise BadSetting(name, path, "there is no such directory")
        for path in self.allow_files:
            if not os.path.isdir(path) or os.pathsep in path:
                why = "its name has a colon" if os.pathsep in path else "there is no such directory"
                raise BadSetting("allow_files", path, why)
        for name, number in (("memory_bytes", self.memory_bytes), ("spill_bytes", self.spill_bytes)):
            check_bytes(name, number)
        self._check_options()
        if self.rm is not None and self.placement != FIFO:
            why = "the resource manager elsewhere decides that: give it to gspc-rts rm"
            raise BadSetting("placement", self.placement, why)
        self._check_managers()
        if self.monitor is not None:
            from gspc_trio.components.monitor.shell.collector import check_monitor

            check_monitor(Path(self.monitor), self.monitor_bytes, self.topology)
        elif self.topology is not None:
            raise BadSetting("topology", str(self.topology), "it is for what monitor keeps: say where")
        if self.io and self.io not in MODES:
            raise BadSetting("io", self.io, f"there are {', '.join(MODES)}")
        if self.io not in ("", "off") and self.monitor is None:
            raise BadSetting("io", self.io, "it is kept with the metrics: say where, with monitor")
        if self.anomalies and self.anomalies not in ANOMALY_MODES:
            raise BadSetting("anomalies", self.anomalies, f"there are {', '.join(ANOMALY_MODES)}")
        if self.anomalies not in ("", "off") and self.monitor is None:
            raise BadSetting("anomalies", self.anomalies, "hosts must be measured: say where, with monitor")
        listen_address(self.listen, self.port, self.tls)
        return self if self.sites is None else replace(self, sites=_given_sites(self.sites))

    def _check_options(self) -> None:
        """See that hosts of this machine know their options, before one of them is started."""
        unknown = sorted(set(self.options) - set(RIF_OPTIONS)) if self.strategy in ON_THIS_MACHINE else []
        for name in unknown:
            why = f"there is no such option{did_you_mean(name, RIF_OPTIONS)}; there are: "
            raise BadSetting("set", f"{name}={self.options[name]}", why + ", ".join(sorted(RIF_OPTIONS)))
        try:
            parse_features(self.options.get("features", ""))
        except ValueError as error:
            raise BadSetting("set", f"features={self.options['features']}", str(error)) from error

    def _check_managers(self) -> None:
        if not 1 <= self.managers <= MANAGERS_MAX:
            raise BadSetting("managers", str(self.managers), f"there can be 1 to {MANAGERS_MAX}")
        if self.sharing not in SHARINGS:
            there = ", ".join(SHARINGS)
            raise BadSetting("sharing", self.sharing, f"there is no such sharing; there are: {there}")
        if self.sharing == "optimistic" and self.managers == 1:
            raise BadSetting("sharing", self.sharing, "for that there must be several managers: say how many")
        for name, other in (("rm", self.rm), ("state", self.state)):
            if self.managers > 1 and other is not None:
                why = f"with {name} there can be only one resource manager"
                raise BadSetting("managers", str(self.managers), why)

    def host_options(self) -> dict[str, str]:
        """Return the options of the first hosts' strategy, with what the settings say of their RIFs."""
        said = {
            "io": self.monitor is not None and (self.io or "counts"),
            "directory": self.directory and os.path.abspath(self.directory),
            "allow_files": os.pathsep.join(map(os.path.abspath, self.allow_files)),
            "memory": self.memory_bytes and str(self.memory_bytes),
            "spill": self.spill_bytes and str(self.spill_bytes),
            "spill_directory": self.spill_directory and os.path.abspath(self.spill_directory),
        }
        return {name: str(value) for name, value in said.items() if value} | dict(self.options)


class StartedRts(NamedTuple):
    """A run-time system whose first hosts are up.

    Attributes:
        service: itself.
        network: in which it listens.
        info: what a connection file is to say of it.
        failed: host -> why it did not come up.
    """

    service: RtsService
    network: Network
    info: ConnectionInfo
    failed: dict[str, str]


@asynccontextmanager
async def open_system(
    settings: RtsSettings,
    *,
    tls_folder: Path,
    listen: Sequence[str] = (),
    only: bool = False,
    strategies: Callable[[Network], Mapping[str, Strategy]] = lambda _: {},
    claim: Callable[[ConnectionInfo], Awaitable[None]] | None = None,
    is_attended: bool = True,
) -> AsyncIterator[StartedRts]:
    """A run-time system with these settings for as long as the block runs; its first hosts are up.

    Args:
        settings: checked ones.
        tls_folder: of the certificate authority, if there is no state.
        listen: further addresses.
        only: it listens at these alone.
        strategies: returns those that there are beside the usual ones.
        claim: told how it is reached before it has any host.
        is_attended: somebody can resume a site that has paused by itself.

    Raises:
        CertificateError, OSError, StateError: certificates or state cannot be used, or it cannot listen.
        BadSetting: there is no such strategy.
        RtsError: no host came up.
        ConnectionFileError, ManagerGone: the resource manager cannot be found, or serves another one.
        ManagersFailed: no resource manager came up.
    """
    tls, state = settings.tls, None if settings.state is None else Path(settings.state)
    async with AsyncExitStack() as at_exit:
        keeper = at_exit.enter_context(_open_state(state)) if state is not None else None
        history = _history(state) if state is not None else None
        before = keeper.before if keeper is not None else new_state()
        where = str(listen_address(settings.listen, settings.port or before.port, tls))
        issue = _issuer(state or tls_folder) if tls else lambda _: ""
        network = Network(wire_codec, bytes.fromhex(before.token), credentials=issue("rts"))
        network.instance = before.instance
        offered = {**_usual(searched=not only), **strategies(network), **_of_sites(settings, before.sites)}
        _check_strategy(settings.strategy, offered)
        monitor = await at_exit.enter_async_context(_collector(settings))

        def prepare(service: RtsService) -> None:
            _equip(service, monitor, is_attended)
            if keeper is not None and history is not None:
                keeper.restore(service)
                history.restore(service)
                at_exit.callback(history.finish, service)

        async with open_rts_service(
            network,
            listen=(*listen,) if only else (*listen, where),
            strategies=offered,
            epoch=keeper.state.epoch if keeper is not None else None,
            issue=issue,
            placement=settings.placement,
            manager=None if settings.rm is None else published_manager(Path(settings.rm), before.instance),
            managers=_several(settings),
            limits=None if keeper is None else Limits(grace_s=RESUME_GRACE_S),
            prepare=prepare,
        ) as service:
            info = ConnectionInfo.create(service.addresses[-1], network.token, VERSION, issue("client"))
            if claim is not None:
                await claim(info)
            await _add_sites(settings, service, before.sites)
            async with open_scope() as nursery:
                for one in (keeper, history):
                    if one is not None:
                        nursery.start_soon(one.follow, service)
                yield StartedRts(service, network, info, await _start_first(settings, service, keeper))
                nursery.cancel_scope.cancel()


def _check_strategy(name: str, offered: Iterable[str]) -> None:
    if name not in offered:
        there = ", ".join(sorted(one for one in offered if not is_of_site(one)))
        raise BadSetting("strategy", name, f"there is no such strategy; there are: {there}")


# Loaded where they are used: no start without a state, certificates or several managers needs them.


def _several(settings: RtsSettings) -> SeveralManagers | None:
    """Return the resource managers, None for one in this process."""
    if settings.managers == 1:
        return None
    from gspc_trio.components.managers.shell.process import run_manager_process

    return SeveralManagers(settings.managers, run_manager_process, settings.placement, settings.sharing)


@asynccontextmanager
async def _collector(settings: RtsSettings) -> AsyncIterator[Collector | None]:
    """What takes the metrics of hosts, for as long as the block runs; None if nobody wants them."""
    if settings.monitor is None:
        yield None
        return
    from gspc_trio.components.monitor.shell.collector import open_collector, racks_in

    mode = settings.anomalies or ANOMALY_MODE
    racks = {} if settings.topology is None else racks_in(settings.topology)
    async with open_collector(Path(settings.monitor), settings.monitor_bytes, mode, racks) as collector:
        yield collector


def _equip(service: RtsService, monitor: Collector | None, is_attended: bool) -> None:
    """Give a service what looks at its hosts, which says of which it is to make no use."""
    service.monitor, service.sites.is_attended = monitor, is_attended
    if monitor is not None:
        monitor.record = service.records.append
    if monitor is not None and monitor.anomalies is not None:
        monitor.anomalies.hosts = HostUse(service)


def _history(state: Path) -> HistoryFiles:
    """Return the files of jobs that are over."""
    from gspc_trio.components.rts.shell.history_files import HistoryFiles

    return HistoryFiles(state / "ended")


def _issuer(folder: Path) -> Callable[[str], str]:
    """Return what issues certificates: role -> credentials."""
    from gspc_trio.nursery.connections.certificates import Authority

    return Authority(folder / "tls").issue


BATCH_STRATEGIES = {
    **{name: name for name in ("dask", "kubernetes", "mpi", "oar", "pbs", "ray", "slurm")},
    "local-batch": "local",
}
"""Strategies whose RIFs are batch jobs -> the provider that knows their batch system."""


class _Late:
    """A strategy that is loaded when it is first used."""

    def __init__(self, load: Callable[[], Strategy], come_up_s: float | None = None) -> None:
        self._load = load
        self.come_up_s = come_up_s

    @cached_property
    def _strategy(self) -> Strategy:
        return self._load()

    async def run(self, order: RifOrder) -> str:
        return await self._strategy.run(order)


class BatchByHand:
    """Starts the blocks that people ask for; their options say where, and who runs the commands there.

    Args:
        provider: name of the one that knows the batch system.
    """

    come_up_s: float = math.inf

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._there: dict[tuple[str, str], Strategy] = {}

    async def run(self, order: RifOrder) -> str:
        """See Strategy."""
        via, address = where = order.options.get("via", ""), order.options.get("address", "")
        if where not in self._there:
            try:
                self._there[where] = _load_batch(self._provider, via, address)
            except ValueError as error:
                raise StrategyError(str(error)) from error
        return await self._there[where].run(order)


def _load_ssh() -> Strategy:
    from gspc_trio.components.provision.shell.ssh import SshStrategy

    return SshStrategy()


def _load_batch(provider: str, via: str = "", address: str = "") -> Strategy:
    from gspc_trio.components.provision.find import find_provider
    from gspc_trio.components.provision.shell.batch import BatchStrategy

    return BatchStrategy(find_provider(provider, via, address))


class StartedRm(NamedTuple):
    """A resource manager that waits for its run-time system, and what a connection file is to say of it."""

    server: ManagerServer
    info: ConnectionInfo


@asynccontextmanager
async def open_rm(settings: RtsSettings, *, tls_folder: Path) -> AsyncIterator[StartedRm]:
    """A resource manager for a run-time system elsewhere, for as long as the block runs (RTS-4).

    Args:
        settings: checked ones; ``listen``, ``port``, ``tls``, ``state`` and ``placement`` count.
        tls_folder: of the certificate authority, if there is no state.

    Raises:
        CertificateError, OSError, StateError: certificates or state cannot be used, or it cannot listen.
    """
    from gspc_trio.components.rm.shell.server import open_manager  # only here: most have their own

    tls, state = settings.tls, None if settings.state is None else Path(settings.state)
    async with AsyncExitStack() as at_exit:
        keeper = at_exit.enter_context(_open_state(state)) if state is not None else None
        before = keeper.before if keeper is not None else new_state()
        where = str(listen_address(settings.listen, settings.port or before.port, tls))
        issue = _issuer(state or tls_folder) if tls else lambda _: ""
        network = Network(wire_codec, bytes.fromhex(before.token), credentials=issue("rm"))
        async with open_manager(network, where, time.time, settings.placement) as server:
            at = parse_address(server.address)
            if keeper is not None and isinstance(at, WebSocketAddress):
                keeper.note_port(at.port)
            info = ConnectionInfo.create(server.address, network.token, VERSION, issue("client"))
            yield StartedRm(server, info)


def _open_state(folder: Path) -> AbstractContextManager[StateKeeper]:
    """Keep the state of a run-time system in a directory for as long as the block runs."""
    from gspc_trio.components.rts.shell.state_files import open_state  # only here: most have no state

    return open_state(folder)


def published_manager(path: Path, instance: str = "", role: str = "rts") -> Connect:
    """Return what opens a connection to the resource manager that has published a file (RTS-4).

    The file is read each time: one that was started again may be reached otherwise.

    Args:
        path: of the file.
        instance: of the run-time system, by which it is known again; "" for a new one.
        role: of whoever connects.
    """

    @asynccontextmanager
    async def connect() -> AsyncIterator[Peer]:
        info = read_connection_file(path)
        network = Network(wire_codec, info.token, credentials=info.credentials)
        network.instance = instance or network.instance
        async with network.connect(info.address, role=role, name=role, expect="rm") as peer:
            yield peer

    return connect


def _given_sites(given: SitesGiven) -> SitesFile:
    """Return the sites that a user means.

    Raises:
        BadSetting: there can be no such sites.
    """
    from gspc_trio.components.provision.site_settings import BadSite, given_sites  # only here: few have sites

    try:
        return given_sites(given)
    except BadSite as error:
        named = given if isinstance(given, Path | str) else "..."
        raise BadSetting("sites", str(named), str(error).removeprefix(f"{named}: ")) from error


def _of_sites(settings: RtsSettings, before: Sequence[SavedSite]) -> dict[str, Strategy]:
    """Return the strategies of sites, by which the blocks of an earlier run-time system go on."""
    sites = {} if settings.sites is None else _given_sites(settings.sites).sites
    kept = {
        one.site: tuple(one.settings.get(key, "") for key in ("provider", "via", "address")) for one in before
    }
    there = kept | {
        name: (site.provider, site.via, site.options.get("address", "")) for name, site in sites.items()
    }
    return {site_strategy(name): _Late(partial(_load_batch, *how), math.inf) for name, how in there.items()}


async def _add_sites(settings: RtsSettings, service: RtsService, before: Sequence[SavedSite]) -> None:
    """Add the sites of the settings, and those that were added to an earlier run-time system.

    Raises:
        BadSetting: one of them cannot be had.
    """
    if settings.sites is not None:
        given = _given_sites(settings.sites)
        service.start_soon(partial(_sweep, given))
        if refusal := await service.sites.add(given, before):
            raise BadSetting("sites", ", ".join(given.sites), refusal)
    if before:
        await service.sites.add_again(before)


async def _sweep(given: SitesFile) -> None:
    """Remove what killed run-time systems have left in the directories that the nodes of sites see, too."""
    from gspc_trio.components.provision.shell.block_folders import SHARED_FOLDER, sweep

    usual = Path.home() / SHARED_FOLDER
    for parent in {Path(site.options.get("shared") or usual) for site in given.sites.values()}:
        await trio.to_thread.run_sync(sweep, parent)  # they may be slow


def _usual(searched: bool) -> dict[str, Strategy]:
    """Return the usual strategies; those of installed packages take a while to find."""
    known: dict[str, Strategy] = find_strategies() if searched else {"local": LocalStrategy()}
    batch = {**_offered_providers(known), **BATCH_STRATEGIES} if searched else BATCH_STRATEGIES
    by_hand = {name: BatchByHand(provider) for name, provider in batch.items()}
    return {**known, "ssh": _Late(_load_ssh), **by_hand}


def _offered_providers(strategies: Mapping[str, Strategy]) -> dict[str, str]:
    """Return the names of providers of installed packages that can be strategies, too."""
    from gspc_trio.components.provision.find import BUILT_IN, provider_names

    return {name: name for name in provider_names() if name not in BUILT_IN and name not in strategies}


async def _start_first(
    settings: RtsSettings, service: RtsService, keeper: StateKeeper | None
) -> dict[str, str]:
    """Start the hosts of the settings and of an earlier run-time system; return host -> why it failed."""
    saved = keeper.hosts_to_start if keeper is not None else ()
    there = {rif.host for rif in service.machine.rifs}
    first = SavedHost("", settings.strategy, settings.cores, settings.host_options())
    alone = settings.sites is not None and not (settings.hosts or settings.cores or saved)
    orders = [] if alone else starting_hosts(settings.hosts, first, saved, there)
    failed: dict[str, str] = {}

    async def start(hosts: list[str], order: SavedHost) -> None:
        report = await service.bootstrap(hosts, order.strategy, order.cores, order.options)
        failed.update(report.failed)

    async with trio.open_nursery() as nursery:
        for hosts, order in orders:
            nursery.start_soon(start, hosts, order)
    if keeper is not None:
        keeper.restored()
        await _let_come_back(service)
    if all(rif.state in (RifState.LOST, RifState.FAILED) for rif in service.machine.rifs) and orders:
        why = "; ".join(f"{host}: {reason}" for host, reason in sorted(failed.items()))
        raise RtsError(f"no RIF came up: {why}" if why else "no RIF came up")
    return failed


async def _let_come_back(service: RtsService) -> None:
    """Give the RIFs of before a moment, so that what is said of them is soon right."""
    with trio.move_on_after(COME_BACK_S):
        while any(rif.state is not RifState.UP for rif in service.machine.rifs):  # noqa: ASYNC110
            await trio.sleep(COME_BACK_S / 20)
