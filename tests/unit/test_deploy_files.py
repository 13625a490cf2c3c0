"""The files of docs/deploy. Neither Docker nor Kubernetes is here: the Dockerfile is read line by line, as `make dist`
installs the same, and the manifest is checked against a schema of the part of KubeRay's resource that it uses.
"""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from dpa.command import imported
from dpa.config import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile, each a word and the rest."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line]


def test_the_image_installs_the_built_wheel_with_the_versions_of_the_lock() -> None:
    given = instructions()
    words = [word for word, _ in given]
    assert words[0] == "FROM" and set(words) <= {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV"}
    [base] = re.findall(r"^python:(3\.\d+)-slim$", given[0][1])
    assert f"Programming Language :: Python :: {base}" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
    copied = [path for word, rest in given if word == "COPY" for path in rest.split()[:-1]]
    assert copied == ["requirements.lock", "dist/*.whl"]
    [install] = [rest for word, rest in given if word == "RUN" and "pip install" in rest]
    assert "--constraint /tmp/dpa/requirements.lock /tmp/dpa/*.whl" in install
    # the same as `make dist` does with the wheel in an empty environment
    installed = (ROOT / ".ci" / "installed.py").read_text(encoding="utf-8")
    assert re.search(r'LOCK = ROOT / "requirements.lock"\n.*"--constraint", LOCK, [^]]*wheel\]', installed, re.DOTALL)


def test_the_image_runs_as_a_user_and_leaves_no_lists_of_packages() -> None:
    given = instructions()
    assert [rest for word, rest in given if word == "USER"] == ["ray"]
    assert any("useradd" in rest and rest.endswith(" ray") for word, rest in given if word == "RUN")
    assert all("rm -rf /var/lib/apt/lists/*" in rest for word, rest in given if "apt-get" in rest)
    assert max(at for at, (_, rest) in enumerate(given) if "apt-get" in rest or "pip " in rest) < [
        word for word, _ in given
    ].index("USER")


def exact(optional: str = "", /, **properties: Any) -> dict[str, Any]:
    """The schema of a mapping with these keys alone, of which some may be left out."""
    required = [name for name in properties if name not in optional.split()]
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def several(items: dict[str, Any], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "minItems": least, "items": items}


TEXT, COUNT, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
PARAMETERS = {"type": "object", "additionalProperties": TEXT}
QUANTITIES = exact(cpu={"type": "string", "pattern": r"^\d+m?$"}, memory=TEXT)
RESOURCES = exact(requests=QUANTITIES, limits=QUANTITIES)
PORTS = several(exact(containerPort=COUNT, name=TEXT), least=0)
CONTAINERS = several(exact("ports", name=TEXT, image=TEXT, ports=PORTS, resources=RESOURCES))
OF_POD = {"serviceAccountName": TEXT, "terminationGracePeriodSeconds": COUNT, "containers": CONTAINERS}
GROUP = {"rayStartParams": PARAMETERS, "template": exact(spec=exact(" ".join([*OF_POD][:2]), **OF_POD))}
CLUSTER = exact(
    "authOptions enableInTreeAutoscaling autoscalerOptions",
    rayVersion=TEXT,
    authOptions=exact(mode={"enum": ["disabled", "token"]}),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=exact("idleTimeoutSeconds", version={"enum": ["v1", "v2"]}, idleTimeoutSeconds=COUNT),
    headGroupSpec=exact(**GROUP),
    workerGroupSpecs=several(exact(groupName=TEXT, replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT, **GROUP)),
)
OF_JOB = {
    "submissionMode": {"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    **{"backoffLimit": COUNT, "shutdownAfterJobFinishes": FLAG, "ttlSecondsAfterFinished": COUNT},
}
RAY_JOB = exact(
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=exact(name=TEXT),
    spec=exact(" ".join(OF_JOB), entrypoint=TEXT, rayClusterSpec=CLUSTER, **OF_JOB),
)


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text(encoding="utf-8"))
    return found


def test_the_manifest_is_a_job_of_kuberay_on_the_ray_of_the_lock() -> None:
    found = manifest()
    jsonschema.validate(found, RAY_JOB)
    cluster = found["spec"]["rayClusterSpec"]
    assert f"\nray=={cluster['rayVersion']}\n" in LOCK
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [container for group in groups for container in group["template"]["spec"]["containers"]]
    assert len({container["image"] for container in containers}) == 1, "Ray must be the same in all"
    for workers in cluster["workerGroupSpecs"]:
        assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


def test_the_entrypoint_is_a_command_whose_options_exist(tmp_path: Path) -> None:
    command, name, _, *arguments = shlex.split(manifest()["spec"]["entrypoint"])
    assert (command, name) == ("dpa", "run")
    options = {option for parameter in imported(name).params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options
    job = tmp_path / "job.yaml"
    job.write_text("input: {path: visits.parquet}\nkey: page\nreducer: count\n", encoding="utf-8")
    overrides = [after for option, after in pairwise(arguments) if option == "--set"]
    assert load(job, overrides).config.resources.cpus == 1
