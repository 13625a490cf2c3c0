"""What processes a Ray of a job's own has, in a program of its own."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from dpa._util.logs import log_to_stderr
from dpa.runtime.cluster import _node_processes, ray_session

if sys.argv[1:]:
    log_to_stderr(sys.argv[1], "driver")
with ray_session(None, object_store_mb=100):
    import ray
    assert "aiohttp" not in sys.modules, "the dashboard needs it"
    from ray._private import parameter, services, utils
    assert parameter.RayParams.__name__ == "RayParams" and services.start_api_server.__name__ == "start_api_server"
    assert utils.get_dashboard_dependency_error() is None, "asked for by somebody else, it is found"
    answer = ray.get(ray.remote(num_cpus=0)(lambda: 6 * 7).remote())
    print(json.dumps([answer, sorted(name for name, _ in _node_processes())]))
"""


@pytest.mark.parametrize(("level", "also"), [([], []), (["warning"], ["log_monitor"])], ids=["quiet", "with logs"])
def test_ray_starts_no_process_that_a_job_of_its_own_has_no_use_for(level: list[str], also: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", PROGRAM, *level]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert json.loads(output.splitlines()[-1]) == [42, sorted(["gcs_server", "raylet", *also])]
