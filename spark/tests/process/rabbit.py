"""A RabbitMQ node of a test's own: on loopback, with its own folder, ports, cookie and name."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = PROGRAM.with_name("rabbitmqctl")
# The largest message that the node takes: RabbitMQ 4's default.
MESSAGE_BYTES = 1 << 24


class Rabbit:
    """One node; what durable queues hold survives kill() and start()."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, distribution, names = free_ports(3)
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"
        config = folder / "rabbit.conf"
        config.write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\nmax_message_size = {MESSAGE_BYTES}\n")
        (folder / "plugins").write_text("[].\n")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"spanmq{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        # Not the one that a node would start by itself, and leave behind.
        self._names = subprocess.Popen(
            ["epmd", "-port", str(names), "-address", "127.0.0.1"], env=self._environment
        )
        self._node: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the node, and return when it takes connections."""
        self._node = subprocess.Popen(
            [PROGRAM],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._node.stdout is not None
        said = []
        for line in self._node.stdout:
            said.append(line)
            if "completed with" in line:
                return
        raise RuntimeError("RabbitMQ did not start:\n" + "".join(said))

    def kill(self) -> None:
        """Kill the node as a power cut would."""
        if self._node is not None:
            os.killpg(self._node.pid, signal.SIGKILL)
            self._node.wait()
            assert self._node.stdout is not None
            self._node.stdout.close()
            self._node = None

    def sync(self) -> None:
        """Write the queues that were declared to the disk: the node's log of these keeps two seconds in memory."""
        subprocess.run(
            [CONTROL, "eval", "ok = disk_log:sync(latest_log)."],
            env=self._environment,
            check=True,
            capture_output=True,
        )

    def stop(self) -> None:
        self.kill()
        self._names.kill()
        self._names.wait()


def is_installed() -> bool:
    return PROGRAM.exists() and shutil.which("epmd") is not None


def declare(url: str, name: str) -> str:
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(name, durable=True)
    return name


def consumed(url: str, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Take everything out of a queue with RabbitMQ's own client: mark, body and properties."""
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        left = channel.queue_declare(name, passive=True).method.message_count
        # What is confirmed is ready: no more will come than it counts.
        while left:
            for _, properties, body in channel.consume(name, auto_ack=True):
                yield properties.message_id, json.loads(body), properties
                left -= 1
                if not left:
                    break
        channel.cancel()


def drained(url: str, name: str) -> list[tuple[str, Any, Any]]:
    return list(consumed(url, name))


def free_ports(n: int) -> list[int]:
    """Return ports that nobody has, below those that the kernel gives to whoever connects to something.

    One of the latter might be taken before the node has it, or while it is dead.
    """
    ports: list[int] = []
    while len(ports) < n:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as tried:
            # As servers do: what is left of a closed connection is in nobody's way.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                tried.bind(("127.0.0.1", port))
                ports += [port] if port not in ports else []
    return ports


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    if not is_installed():
        pytest.skip("there is no RabbitMQ here (Debian: rabbitmq-server)")
    node = Rabbit(tmp_path_factory.mktemp("rabbit"))
    try:
        node.start()
        yield node
    finally:
        node.stop()
