"""Hosts on one machine: network, process and file-system namespaces, each with an ssh server of its own.

Needs root, ``ip``, ``nft`` and ``sshd``. Hosts are named h1, h2, ... at 10.79.0.11, 10.79.0.12, ...; the test
itself is at 10.79.0.1. Packets between them can be dropped, lost now and then, or refused; those of h3 can be
delayed, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

NETWORK = "10.79.0"
BRIDGE = "gspclab0"
HERE = f"{NETWORK}.1"
SCRATCH_BYTES = 4 * 2**20
SLOW = "h3"
"""The host whose link can be slow."""

TOOLS = ("ip", "nft", "sshd", "ssh", "ssh-keygen", "unshare")

TABLES = {
    "black hole": ["drop"],
    "lossy": ["numgen random mod 100 < 20 drop"],
    "refusing": ["meta l4proto tcp reject with tcp reset"],
}
"""What a host's link may do with packets in both directions; ssh to it suffers alike."""


def missing() -> str:
    """Return why there can be no hosts here, or ""."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "hosts in namespaces need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if lacking:
        packages = "openssh-server, iproute2, nftables"
        return f"there is no {', '.join(lacking)}: install the Debian packages {packages}"
    made = subprocess.run(["ip", "netns", "add", "gspclab-probe"], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespace can be made here: {made.stderr.strip()}"
    run("ip", "netns", "del", "gspclab-probe")
    return ""


def run(*command: str, check: bool = True) -> str:
    """Run a program and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


class Host:
    """One host.

    Attributes:
        name, address: how it is reached.
        scratch: a small file system of its own; others see an empty directory there.
    """

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"h{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.namespace = f"gspclab-{self.name}"
        self.scratch = folder / "scratch"
        self._folder = folder
        self._link = f"gspclab{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._relay: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Bring it up."""
        run("ip", "netns", "add", self.namespace)
        inside = ("ip", "-n", self.namespace)
        if self.name == SLOW:
            self._start_relay()
        else:
            ends = (self._link, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
            run("ip", "link", "add", *ends)
        run("ip", "link", "set", self._link, "master", BRIDGE, "up")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "route", "add", "default", "via", HERE)
        self.boot()

    def _start_relay(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("slow_link.py")), self.namespace, self._link]
        self._relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == "ready\n"

    def delay(self, seconds: float) -> None:
        """Let each packet from and to it take so long; only the link of :data:`SLOW` can be slow."""
        assert self._relay is not None
        assert self._relay.stdin is not None
        self._relay.stdin.write(f"{seconds}\n")
        self._relay.stdin.flush()

    def boot(self, **environment: str) -> None:
        """Start its first process, after which all others are gone with it.

        Args:
            environment: of all that comes by ssh.
        """
        configuration = self._folder / f"{self.name}.sshd"
        configuration.write_text(
            f"ListenAddress {self.address}:22\nHostKey {self._folder}/host_key\n"
            f"AuthorizedKeysFile {self._folder}/id.pub\nPidFile none\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\n"
            + (
                f"SetEnv {' '.join(f'{name}={value}' for name, value in environment.items())}\n"
                if environment
                else ""
            )
        )
        script = (
            f"hostname {self.name} && mount -t tmpfs -o size={SCRATCH_BYTES} none {self.scratch} "
            f"&& exec {shutil.which('sshd', path='/usr/sbin:/sbin:/usr/bin')} -D -e -f {configuration}"
        )
        log = (self._folder / f"{self.name}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "--mount", "--pid", "--fork",
                 "--kill-child", "--mount-proc", "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=1):
                return
            threading.Event().wait(0.05)
        raise AssertionError(f"{self.name} is not up: {(self._folder / f'{self.name}.log').read_text()}")

    def crash(self) -> None:
        """End everything that runs on it at once, without a word to anybody."""
        assert self._process is not None
        self.link("black hole")  # its kernel would say goodbye for it
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def link(self, how: str = "") -> None:
        """Let its link do something to packets, or nothing."""
        inside = ("ip", "netns", "exec", self.namespace, "nft")
        run(*inside, "delete", "table", "inet", "fault", check=False)
        if how:
            rules = "; ".join(TABLES[how])
            chains = "".join(
                f"chain {name} {{ type filter hook {name} priority 0; {rules}; }}\n"
                for name in ("input", "output")
            )
            done = subprocess.run(
                [*inside, "-f", "-"], input=f"table inet fault {{ {chains} }}", text=True, capture_output=True
            )
            assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        """Take it away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for pid in run("ip", "netns", "pids", self.namespace, check=False).split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()
        run("ip", "netns", "del", self.namespace, check=False)
        run("ip", "link", "del", self._link, check=False)


class Lab:
    """All hosts, and how ssh reaches them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.hosts = [Host(number, folder) for number in range(1, count + 1)]
        self.ssh_config = folder / "ssh_config"

    def start(self) -> None:
        """Bring everything up."""
        self.stop()  # what a killed run has left
        for name in ("id", "host_key"):
            if not (self.folder / name).exists():
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "scratch").mkdir(exist_ok=True)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        known = "".join(f"{host.address} {kind} {key}\n" for host in self.hosts)
        (self.folder / "known_hosts").write_text(known)
        entries = "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in self.hosts)
        self.ssh_config.write_text(
            f"{entries}Host stranger\n  HostName {self.hosts[0].address}\n  UserKnownHostsFile /dev/null\n"
            f"Host *\n  User root\n  IdentityFile {self.folder}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        )
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{HERE}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for host in self.hosts:
            host.start()

    def stop(self) -> None:
        """Take everything away."""
        for host in self.hosts:
            host.stop()
        run("ip", "link", "del", BRIDGE, check=False)

    def ssh(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        return subprocess.run(
            ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", host, command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )


@contextlib.contextmanager
def open_lab(folder: Path, count: int = 3) -> Iterator[Lab]:
    """Hosts for the time of a block."""
    lab = Lab(folder, count)
    try:
        lab.start()
        yield lab
    finally:
        lab.stop()
