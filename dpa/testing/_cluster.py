"""Several Ray nodes on one machine, to see tasks placed and lost without a cluster."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from typing import Any

from dpa._util.streams import chosen_level
from dpa.runtime.cluster import keep_others_out, rays_directory
from dpa.runtime.ray_internals.private import few_processes


class LocalCluster:
    """Ray nodes in this machine's processes, in a `with` block. Each has the processors that you name; nothing keeps
    its tasks from using more.

    Jobs run on it with `address=cluster.address`, in this process or in one that it starts, which inherits the token.

    Args:
        nodes: the processors of each node, by its name; the first is the head.
        object_store_mb: size of each node's object store, in MiB.

    Raises:
        ValueError: no node is named.
    """

    def __init__(self, nodes: Mapping[str, float], *, object_store_mb: int = 128) -> None:
        if not nodes:
            raise ValueError("a cluster needs at least one node")
        self._nodes, self._object_store = dict(nodes), object_store_mb * 2**20
        self._cluster: Any = None
        self._started: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """The host and port where jobs reach it.

        Raises:
            RuntimeError: the block has not begun.
        """
        if self._cluster is None:
            raise RuntimeError("the cluster runs in a `with` block alone")
        return str(self._cluster.address)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its present nodes, the head first."""
        return tuple(self._started)

    def add(self, name: str, processors: float) -> None:
        """Start another node, or a removed one again.

        Raises:
            ValueError: it has one of this name.
        """
        if name in self._started:
            raise ValueError(f"there is a node {name!r} already")
        with few_processes(logs=not self._started):  # the head's monitor finds the logs of all
            self._started[name] = self._cluster.add_node(
                node_name=name,
                num_cpus=processors,
                object_store_memory=self._object_store,
                include_dashboard=False,
                temp_dir=rays_directory(),
            )

    def remove(self, name: str) -> None:
        """End a node, as if its machine had died.

        Raises:
            KeyError: there is no such node.
            ValueError: it is the head, which all others need.
        """
        if name == next(iter(self._nodes)):
            raise ValueError(f"{name} is the head; the cluster ends with its block")
        node = self._started.pop(name)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_raylet(self, name: str) -> None:
        """Kill only a node's raylet, as a crash of Ray or the kernel would; its other processes must notice. `remove`
        the node afterwards as usual.

        Raises:
            KeyError: there is no such node.
        """
        raylet = self._started[name].all_processes["raylet"][0].process
        raylet.kill()
        raylet.wait()

    def __enter__(self) -> LocalCluster:
        keep_others_out()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        from ray._common.utils import get_default_ray_temp_dir, try_to_create_directory
        from ray.cluster_utils import Cluster

        try_to_create_directory(get_default_ray_temp_dir())  # where Ray notes an address, wherever else its files are
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._cluster = Cluster(shutdown_at_exit=False)
        try:
            for name, processors in self._nodes.items():
                self.add(name, processors)
        except BaseException:
            self._cluster.shutdown()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        place = self._cluster.head_node.get_session_dir_path()
        self._cluster.shutdown()
        if chosen_level() is None:  # else the user wants the logs
            shutil.rmtree(place, ignore_errors=True)
