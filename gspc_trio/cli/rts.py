"""``gspc-rts``: run a run-time system, and talk to a running one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import App, Parameter
from msgspec.structs import replace

from gspc_trio.cli import completion
from gspc_trio.cli.arguments import (
    AllowFiles,
    Anomalies,
    Cores,
    HostOptions,
    Hosts,
    LogJson,
    ManagerCount,
    MaybeDirectory,
    MaybeWhole,
    MetricsPort,
    Monitor,
    MonitorBytes,
    PlacementName,
    Port,
    RemoteRm,
    RemovePolicy,
    Settings,
    Sharing,
    SitesOption,
    Size,
    Spill,
    SpillDirectory,
    TaskDirectory,
    TaskIo,
    Topology,
    Verbose,
)
from gspc_trio.cli.common import (
    CommandError,
    UsageError,
    connection_path,
    parse_option,
    print_json,
    run_command,
    running_connection,
    set_up_logging,
    setting_error,
)
from gspc_trio.cli.describe import describe_status
from gspc_trio.cli.monitor.hosts import hosts as hosts_command
from gspc_trio.cli.sites import app as site_app
from gspc_trio.cli.sites import block_app
from gspc_trio.cli.waiting import describe_waiting, watched
from gspc_trio.components.provision.strategy import parse_time
from gspc_trio.components.rif.messages import MemoryServer
from gspc_trio.components.rm.shell.service import RmShell
from gspc_trio.components.rts.messages import NO_STRATEGY, StopRts
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.components.rts.shell.system import RtsSettings, open_rm, open_system, published_manager
from gspc_trio.core.imports import missing_extra
from gspc_trio.core.resources import parse_features, parse_resource
from gspc_trio.iml.quota import parse_size
from gspc_trio.nursery.connections.connection_file import (
    ConnectionFileError,
    ConnectionInfo,
    claim_connection_file,
    find_live_connection,
    read_connection_file,
    remove_connection_file,
    write_connection_file,
)
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.protocol.listening import BadSetting
from gspc_trio.protocol.plain import to_plain
from gspc_trio.version import VERSION

app: App = App(name="gspc-rts", help="Start a run-time system, and control a running one.", version=VERSION)
app.command(site_app)
app.command(block_app)
app.command(hosts_command, name="hosts")

STOP_S = 30.0
"""So long ``stop`` waits for the end of what it stops."""

FILE_NAMES = ["--connection-file", "--rts"]
File = Annotated[Path | None, Parameter(name=FILE_NAMES)]
RunningFile = Annotated[
    Path | None,
    Parameter(
        name=FILE_NAMES, help="Connection file of the run-time system; by default that of the current user."
    ),
]
RifName = Annotated[str, Parameter(completer=completion.rifs)]
JobName = Annotated[str, Parameter(completer=completion.jobs)]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, not text.")]


@app.command
async def start(
    *,
    connection_file: File = None,
    cores: Cores = 0,
    port: Port = 0,
    listen: str = "127.0.0.1",
    tls: Annotated[bool, Parameter(negative=())] = False,
    state: MaybeDirectory = None,
    placement: PlacementName = "fifo",
    hosts: HostOptions = None,
    strategy: str = "local",
    settings: Settings = None,
    directory: TaskDirectory = "",
    allow_files: AllowFiles = None,
    memory: Size = "",
    spill: Spill = "",
    spill_directory: SpillDirectory = "",
    rm: RemoteRm = None,
    sites: SitesOption = None,
    managers: ManagerCount = 1,
    sharing: Sharing | None = None,
    monitor: Monitor = None,
    monitor_bytes: MonitorBytes = "2GiB",
    topology: Topology = None,
    io: TaskIo = "",
    anomalies: Anomalies = "",
    metrics: MetricsPort = None,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run a run-time system in the foreground until it is stopped.

    Parameters
    ----------
    connection_file
        Write address and secret to this file; by default in the user's runtime directory.
    cores
        Cores that each host offers; 0 for all.
    port
        TCP port; 0 for any free one.
    listen
        Address to listen on; an address that other hosts can reach needs --tls.
    tls
        Encrypt all connections (TLS 1.3); certificates are kept beside the connection file.
    state
        Write address, secret and hosts to this directory. If the run-time system crashes, and is started
        again with the same directory within 30 s, hosts and jobs reconnect, and their tasks go on.
    placement
        Which free resource is used next: fifo (free for longest), compact (fill one host after the other),
        fair (spread over hosts) or progressive (spread while there is room, then fill up).
    hosts
        Name of a host to start a RIF on; repeat it for several. By default this host.
    strategy
        How their RIFs are started: local (here, under any names), ssh, slurm, or one that a package offers.
    settings
        name=value, an option of the strategy; repeat it. For all: features=ssd,..., what its hosts have.
    allow_files
        Directory in which file:// URIs may name files, beside that of the job; repeat it for several.
    memory
        How much shared memory each memory server may use, e.g. 4GiB; by default a quarter of its host's.
    """
    options = dict(map(parse_option, settings or []))
    told = RtsSettings(tuple(hosts or ()), strategy, options, cores, port, listen, tls, state, placement)
    told = replace(told, directory=directory, allow_files=tuple(allow_files or ()), rm=rm, sites=sites)
    sizes = {"memory_bytes": memory or "0", "spill_bytes": spill or "0", "monitor_bytes": monitor_bytes}
    told = replace(told, **{name: parse_size(text) for name, text in sizes.items()}, monitor=monitor)
    told = replace(told, spill_directory=spill_directory, io=io, anomalies=anomalies, topology=topology)
    told = replace(told, managers=managers, sharing=_sharing(sharing, managers))
    await _run(told, await _free_path(connection_file, verbose, log_json), metrics)


def _sharing(sharing: Sharing | None, managers: int) -> Sharing:
    if sharing is not None and managers == 1:
        raise UsageError(f"--sharing {sharing}: this is for several managers; say how many: --managers N")
    return sharing or "pessimistic"


async def _free_path(connection_file: Path | None, verbose: bool, log_json: bool) -> Path:
    """Set up logging; return the connection file of a run-time system that starts.

    Raises:
        CommandError: another one has it.
    """
    set_up_logging(verbose, log_json)
    path = connection_path(connection_file)
    _refuse_second(await find_live_connection(path), path)
    return path


async def _run(settings: RtsSettings, path: Path, metrics: int | None) -> None:
    """Run it, say where it is, and serve until it is told to stop."""
    claimed: list[ConnectionInfo] = []

    async def claim(info: ConnectionInfo) -> None:
        _refuse_second(await claim_connection_file(path, info), path)
        claimed.append(info)

    try:
        with tuned_collector():
            async with open_system(settings.checked(), tls_folder=path.parent, claim=claim) as started:
                for host, reason in started.failed.items():
                    print(f"{host} failed: {reason}", flush=True)
                async with _metrics_served(path, settings.listen, metrics):
                    await _serve_until_stopped(started.service, path)
    except BadSetting as error:
        raise setting_error(error) from error
    finally:
        for info in claimed:
            remove_connection_file(path, info)


@asynccontextmanager
async def _metrics_served(path: Path, listen: str, port: int | None) -> AsyncIterator[None]:
    """Serve metrics, if a port is named for them, while the block runs."""
    if port is None:
        yield
        return
    try:
        from gspc_trio.integrations.metrics import open_metrics
    except ModuleNotFoundError as error:
        raise UsageError(missing_extra("--metrics", "prometheus-client", "metrics")) from error
    async with AsyncExitStack() as stack:
        try:
            at = await stack.enter_async_context(open_metrics(path, port, listen))
        except OSError as error:
            raise CommandError(f"--metrics {port}: cannot listen at {listen}: {error.strerror}") from error
        print(f"metrics at http://{listen}:{at}/metrics", flush=True)
        yield


@app.command(name="rm")
async def manage(
    *,
    connection_file: Annotated[Path | None, Parameter(name=["--connection-file"])] = None,
    port: Port = 0,
    listen: str = "127.0.0.1",
    tls: Annotated[bool, Parameter(negative=())] = False,
    state: MaybeDirectory = None,
    placement: PlacementName = "fifo",
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run a resource manager of its own in the foreground; a run-time system uses it with start --rm FILE.

    If the connection is lost, the run-time system looks for it for 30 s; tasks that run go on meanwhile, and
    nothing new begins. It serves one run-time system at a time. Ctrl-C stops it, and so does gspc-rts stop
    --rm FILE.

    Parameters
    ----------
    connection_file
        Write address and secret to this file; by default rm.json in the user's runtime directory.
    port
        TCP port; 0 for any free one.
    listen
        Address to listen on; an address that other hosts can reach needs --tls.
    tls
        Encrypt all connections (TLS 1.3); certificates are kept beside the connection file.
    state
        Keep port and secret in this directory: copies of the connection file on other hosts stay valid.
    placement
        Which free resource is used next: fifo, compact, fair or progressive.
    """
    set_up_logging(verbose, log_json)
    path = connection_file or connection_path(None).with_name("rm.json")
    _refuse_second(await find_live_connection(path), path, "resource manager", "--rm")
    settings = RtsSettings(port=port, listen=listen, tls=tls, state=state, placement=placement)
    with tuned_collector():
        async with open_rm(settings.checked(), tls_folder=path.parent) as started:
            again = await claim_connection_file(path, started.info)
            _refuse_second(again, path, "resource manager", "--rm")
            try:
                print(f"resource manager at {started.info.address}, process {os.getpid()}", flush=True)
                print(f"connection file {path}", flush=True)
                await started.server.stopped.wait()
            finally:
                remove_connection_file(path, started.info)


def _refuse_second(
    alive: ConnectionInfo | None, path: Path, what: str = "run-time system", option: str = "--rts"
) -> None:
    if alive is not None:
        raise CommandError(
            f"a {what} runs already (process {alive.pid}, {alive.address}, {path}); "
            f"stop it with gspc-rts stop {option} {path}, or use another --connection-file"
        )


async def _serve_until_stopped(service: RtsService, path: Path) -> None:
    if not isinstance(service.rm, RmShell):
        await service.rm.look()
    classes = ", ".join(f"{entry.total} {name}" for name, entry in service.status().classes.items())
    classes = classes or "no host yet"
    print(f"run-time system at {service.address}, process {os.getpid()}: {classes}", flush=True)
    print(f"connection file {path}", flush=True)
    await service.stopped.wait()


@app.command
async def status(*, connection_file: RunningFile = None, json: Json = False) -> None:
    """Show RIFs, resource classes and jobs of a running run-time system."""
    async with join_rts(running_connection(connection_file)) as rts:
        told = await rts.status()
    if json:
        print_json(to_plain(told))
    else:
        print("\n".join(describe_status(told)))


@app.command
async def explain(job: JobName, *, connection_file: RunningFile = None, json: Json = False) -> None:
    """Say why requests of a job wait: what each needs, which job holds that, and its place in the queue.

    Parameters
    ----------
    job
        Id of the job, as gspc-rts status shows it.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        waiting = await rts.explain(job)
    if json:
        print_json({"job": job, "waiting": to_plain(waiting)})
    else:
        print("\n".join(describe_waiting(job, waiting)))


@app.command
async def bootstrap(
    hosts: Hosts,
    *,
    strategy: str = "local",
    cores: Cores = 0,
    nodes: MaybeWhole = None,
    settings: Settings = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> int:
    """Start a RIF on each of these hosts, or blocks of RIFs with --nodes.

    While that takes, what each of them waits for is printed on standard error.

    Parameters
    ----------
    hosts
        Names of hosts; for the strategies local and slurm, any names.
    strategy
        How a RIF is started: local, ssh, or one that an installed package offers. In batch jobs: dask,
        kubernetes, mpi, oar, pbs, ray, slurm, or local-batch on this host.
    cores
        Cores that each host offers; 0 for all.
    nodes
        Each name is that of a block: one batch job of so many nodes, with a RIF on each (NAME.0, NAME.1,
        ...). A node that is lost is not started again, the others go on. Without it each name is that of a
        host, in a batch job of one node, which is submitted again when it is lost.
    settings
        name=value, an option of the strategy; repeat it to set several. For ssh: python (the interpreter
        there), config (in place of ~/.ssh/config). For batch jobs: queue, account, arguments (for the command
        that submits), shared (a directory that the nodes see, too), python, via (ssh:HOST, where that command
        runs), address (of a cluster of dask or ray), image (for kubernetes). For all: directory, memory,
        spill, spill_directory (as for gspc-rts start); features (such as ssd,infiniband, which tasks can ask
        for, beside the flags of the processor); time (e.g. 10m), after which the host ends: it gets no
        task that takes longer.
    """
    if nodes is not None and nodes < 1:
        raise UsageError(f"--nodes {nodes}: a block has at least one node; for single hosts leave it out")
    options = dict(parse_option(text) for text in settings or [])
    parsers = {"memory": parse_size, "spill": parse_size, "time": parse_time, "features": parse_features}
    for name, parse in parsers.items():
        try:
            if name in options:
                parse(options[name])
        except ValueError as error:
            raise UsageError(f"--set {name}={options[name]}: {error}") from error
    async with join_rts(running_connection(connection_file)) as rts:
        try:
            async with watched(rts, hosts):
                report = await rts.bootstrap(hosts, strategy, cores=cores, options=options, nodes=nodes or 0)
        except RemoteError as error:
            if error.message.startswith(NO_STRATEGY):
                raise UsageError(f"--strategy {strategy}: {error.message}") from error
            raise
    if json:
        print_json({"started": report.started, "failed": report.failed})
    else:
        for host, rif_id in report.started.items():
            print(f"{host}: {rif_id} is up")
        for host, reason in report.failed.items():
            print(f"{host}: failed: {reason}")
    return 1 if report.failed else 0


@app.command
async def teardown(
    rif_ids: Annotated[list[str], Parameter(completer=completion.rifs)],
    *,
    connection_file: RunningFile = None,
) -> int:
    """Stop these RIFs; jobs run the tasks there again on other hosts.

    Parameters
    ----------
    rif_ids
        Ids of RIFs, as gspc-rts status shows them.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        stopped = await rts.teardown(rif_ids)
    for rif_id in rif_ids:
        print(f"{rif_id}: {'stopped' if rif_id in stopped else 'was not running'}")
    return 0 if set(rif_ids) <= set(stopped) else 1


@app.command
async def start_iml(
    rif_id: RifName,
    *,
    memory: Size = "",
    spill: Size = "",
    publish: Path | None = None,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Start a memory server on the host of a RIF; the first one makes a memory layer, others join it.

    It ends with gspc-rts stop-iml, or with its RIF. The layer lives as long as its first server.

    Parameters
    ----------
    rif_id
        The RIF.
    memory
        How much shared memory it may use, e.g. 4GiB; by default, and with 0, what its RIF was told, or a
        quarter of the memory of its host.
    spill
        How much disk it may use when its memory is full, e.g. 20GiB; by default, and with 0, what its RIF was
        told.
    publish
        Write how the layer is reached to this file, for gspc-jobserver run --iml FILE and gspc-iml. It
        replaces a connection file of a service that has ended, and no other file.
    """
    sizes = (parse_size(memory or "0"), parse_size(spill or "0"))
    async with join_rts(running_connection(connection_file)) as rts:
        rifs = (await rts.status()).rifs
        if publish is not None:
            alive = await find_live_connection(publish)
            if alive is not None and alive.address not in {rif.memory_layer for rif in rifs}:
                raise UsageError(
                    f"--publish {publish}: this is the connection file of a service that runs (process "
                    f"{alive.pid}, {alive.address}): name another file"
                )
        server = await rts.start_iml(rif_id, memory_bytes=sizes[0], spill_bytes=sizes[1])
        if publish is not None:
            try:
                _publish_layer(publish, server, {rif.rif_id: rif.host for rif in rifs}.get(rif_id, ""))
            except ConnectionFileError:
                await rts.stop_iml(rif_id)  # nobody could find it
                raise
    if json:
        told = {"rif": rif_id, "layer": server.layer.address, "memory_bytes": server.memory_bytes}
        print_json(told | {"spill_bytes": server.spill_bytes})
    else:
        print(f"{rif_id}: memory server of {server.memory_bytes} bytes, layer {server.layer.address}")
        if publish is not None:
            print(f"connection file {publish}")


def _publish_layer(path: Path, server: MemoryServer, rif_host: str) -> None:
    layer = server.layer
    info = ConnectionInfo.create(layer.address, layer.token, VERSION, layer.credentials)
    host = info.host if rif_host == info.host else server.host
    write_connection_file(path, replace(info, pid=server.pid, process_started=0, host=host))


@app.command
async def stop_iml(rif_id: RifName, *, connection_file: RunningFile = None) -> None:
    """Stop the memory server that was started with start-iml; what only that has is lost.

    A file of start-iml --publish stays. If the layer has ended with this server, the file is of no use.

    Parameters
    ----------
    rif_id
        The RIF.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        await rts.stop_iml(rif_id)
    print(f"{rif_id}: memory server stopped")


@app.command
async def add(rif_id: RifName, resources: list[str], *, connection_file: RunningFile = None) -> None:
    """Add resources to a RIF, each written ID=CLASS or ID=CLASS:PARENT,PARENT.

    Parameters
    ----------
    rif_id
        The RIF.
    resources
        For example r1.fpga0=fpga:r1.node
    """
    try:
        wanted = tuple(map(parse_resource, resources))
    except ValueError as error:
        raise UsageError(f"RESOURCES {error}") from None
    async with join_rts(running_connection(connection_file)) as rts:
        report = await rts.add(rif_id, wanted)
    for worker in report.workers:
        print(f"{worker.resource_id} ({worker.resource_class}) on {worker.host} at {worker.address}")


@app.command
async def remove(
    rif_id: RifName,
    resource_ids: list[str],
    *,
    policy: RemovePolicy = "lose",
    connection_file: RunningFile = None,
) -> None:
    """Remove resources from a RIF.

    Parameters
    ----------
    rif_id
        The RIF.
    resource_ids
        Ids of its resources; resources below them are removed, too.
    policy
        If they are in use: lose (their tasks run elsewhere), wait (until they are free) or refuse.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        report = await rts.remove(rif_id, resource_ids, policy)
    for worker in report.workers:
        print(f"{worker.resource_id} removed")


@app.command
async def stop(*, connection_file: RunningFile = None, rm: Path | None = None) -> None:
    """Stop a running run-time system, with everything that runs on it.

    Parameters
    ----------
    rm
        Stop the resource manager that has written this connection file, not a run-time system.
    """
    if rm is not None:
        async with published_manager(rm, role="control")() as manager:
            await manager.call(StopRts())
        print("stopped")
        return
    path = running_connection(connection_file)
    async with join_rts(path) as rts:
        info = read_connection_file(path)
        await rts.stop()
        with trio.move_on_after(STOP_S) as waiting:
            await rts.peer.lost.wait()
            await info.process_end()  # until then it takes away what it has made
    if waiting.cancelled_caught:
        raise CommandError(f"process {info.pid} was told to stop, and has not ended within {STOP_S:g} s")
    print("stopped")


def main() -> None:
    """Run the command ``gspc-rts``."""
    run_command(app)


if __name__ == "__main__":
    main()
