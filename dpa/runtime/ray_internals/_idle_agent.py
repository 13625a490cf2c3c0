"""A program in place of the two agents of an embedded Ray's node, for whose imports its raylet would wait. Without a
dashboard its agent has nothing to do. The agent of runtime environments takes this one's place when somebody asks for
it. Both end with their raylet. Nothing that takes long is imported here."""

import os
import selectors
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PORTS = "metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"
"""The files in which a node looks for the ports of the dashboard's agent."""

ENVIRONMENTS_PORT = "runtime_env_agent_port"
"""The same for the agent of runtime environments."""

_UNUSED = -1  # Ray's own agents write this for a port on which they do not listen


def main(agent: Sequence[str]) -> None:
    """Stand in for an agent: its script and its options."""
    options = dict(word.split("=", 1) for word in agent if "=" in word)
    raylet = os.pidfd_open(int(os.environ.get("RAY_RAYLET_PID", os.getppid())))
    with selectors.DefaultSelector() as selector:
        selector.register(raylet, selectors.EVENT_READ)
        if "--runtime-env-agent-port" not in options:
            for name in PORTS:
                _tell(options, name, _UNUSED)
            selector.select()
            return
        [(family, _, _, _, address), *_] = socket.getaddrinfo(options["--node-ip-address"], 0, type=socket.SOCK_STREAM)
        holder = socket.socket(family)  # keeps the port until the agent listens there
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(address)
        holder.set_inheritable(True)
        with socket.create_server(holder.getsockname()[:2], family=family) as listener:
            selector.register(listener, selectors.EVENT_READ)
            port = listener.getsockname()[1]
            _tell(options, ENVIRONMENTS_PORT, port)
            if raylet in {key.fileobj for key, _ in selector.select()}:
                return
    # The caller's connection is refused, and it asks again.
    os.execv(sys.executable, [sys.executable, *agent, f"--runtime-env-agent-port={port}"])


def _tell(options: Mapping[str, str], name: str, port: int) -> None:
    """Write a port to its file, which is there with all its content or not at all."""
    file = Path(options["--session-dir"], f"{name}_{options['--node-id']}")
    written = file.with_name(f"{file.name}.{os.getpid()}")
    written.write_text(str(port))
    written.replace(file)


if __name__ == "__main__":
    with suppress(ProcessLookupError):  # the raylet has ended already
        main(sys.argv[1:])
