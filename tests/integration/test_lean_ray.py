"""What processes a Ray of a job's own has, in a program of its own."""

import sys
from pathlib import Path

import pytest
from programs_for_tests import begun, has_ended, printed, wait_until

from dpa.runtime.ray_internals._forked_worker import SCRIPT, WORKER_PORTS

PROGRAM = """
import json, sys
from pathlib import Path
from dpa.runtime.cluster import ray_session
from dpa.runtime.ray_internals.private import node_processes, session_directory

with ray_session(None, object_store_mb=100):
    import ray
    assert "aiohttp" not in sys.modules, "the dashboard needs it"
    from ray._private import parameter, services, utils
    assert parameter.RayParams.__name__ == "RayParams" and services.start_api_server.__name__ == "start_api_server"
    assert utils.get_dashboard_dependency_error() is None, "asked for by somebody else, it is found"
    made = ray.remote(num_cpus=0)(lambda size: bytes(size))
    found = [made.remote(size) for size in (2**20, 3 * 2**20)]
    ray.wait(found, num_returns=2, fetch_local=False)
    from ray._private.worker import global_worker
    small = [global_worker.core_worker.object_exists(each, memory_store_only=True) for each in found]
    names = sorted(name for name, _ in node_processes())
    assert (logs := Path(session_directory())).is_dir()
print(json.dumps([small, names, logs.exists()]))
"""


def test_ray_starts_no_process_that_a_job_of_its_own_has_no_use_for(tmp_path: Path) -> None:
    small, names, has_logs = printed(begun(PROGRAM, tmp_path), is_quiet=False)
    assert names == ["gcs_server", "raylet"]
    assert small == [True, False], "what is as large as most blocks does not go through the object store"
    assert not has_logs, "they go with Ray"


FORKS = """
import json, os, sys
from dpa._util.streams import log_to_stderr
from dpa.runtime.cluster import ray_session
from dpa.runtime.ray_internals.private import node_processes

class Place:
    def which(self):
        import psutil
        import random
        import numpy
        paths = [path for path in sys.path if path]
        return {
            "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0), "paths": paths,
            "directory": os.getcwd(), "word": os.environ["WORD"], "draws": [random.random(), numpy.random.rand()],
            "ports": [each.laddr.port for each in psutil.Process().net_connections("inet") if each.status == "LISTEN"],
        }

log_to_stderr("warning", "driver")
with ray_session(None, object_store_mb=100):
    import ray
    names = sorted(name for name, _ in node_processes())
    actors = [ray.remote(Place).options(num_cpus=0).remote() for _ in range(2)]
    found = ray.get([actor.which.remote() for actor in actors])
    [server] = {place["parent"] for place in found}
    os.kill(server, 9)
    for runtime_env in ({}, {"env_vars": {"WORD": "another"}}):
        actor = ray.remote(Place).options(num_cpus=0, runtime_env=runtime_env).remote()
        found.append(ray.get(actor.which.remote()))
    print(json.dumps([names, server, os.getpid(), found]))
"""


@pytest.mark.skipif(SCRIPT is None, reason="workers are not forked on this system")
def test_workers_are_forked_as_if_they_were_started_and_start_themselves_without_the_server(tmp_path: Path) -> None:
    paths, word = [path for path in sys.path if path], "so\nand 'so'"
    names, server, driver, [*places, elsewhere] = printed(begun(FORKS, tmp_path, WORD=word), is_quiet=False)
    assert names == ["gcs_server", "log_monitor", "raylet"], "logs of actors are wanted here"
    assert elsewhere["word"] == "another", "the agent of runtime environments has come"
    raylet = places[-1]["parent"]
    assert len({server, driver, raylet, *(place["pid"] for place in places)}) == 6, "the last is the raylet's own child"
    for place in places:
        assert (place["directory"], place["word"]) == (str(tmp_path), word)
        assert set(paths) <= set(place["paths"])
        assert place["group"] == place["pid"], "Ray kills the group of a worker that has ended"
        assert place["paths"] == places[0]["paths"]
        assert any(port in WORKER_PORTS for port in place["ports"]), "the system might choose one that was just in use"
    for draws in zip(*(place["draws"] for place in places), strict=True):
        assert len(set(draws)) == 3, "forks do not draw what others draw"
    wait_until(lambda: all(map(has_ended, (server, raylet, *(place["pid"] for place in places)))))
