"""The jobs of examples/kubernetes have only fields that the operators know, and all required ones."""

import pathlib
import re

import kubernetes.client.models
import pytest
import yaml
from kubeflow.training import models

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "kubernetes"
# Of kubeflow.org/v2beta1, whose models are not published for Python: https://github.com/kubeflow/mpi-operator,
# pkg/apis/kubeflow/v2beta1/types.go. Replicas and run policies are those of the other operators.
MPI_JOB_SPEC = {
    "slotsPerWorker": "int",
    "runLauncherAsWorker": "bool",
    "runPolicy": "KubeflowOrgV1RunPolicy",
    "mpiReplicaSpecs": "dict(str, KubeflowOrgV1ReplicaSpec)",
    "sshAuthMountPath": "str",
    "launcherCreationPolicy": "str",
    "mpiImplementation": "str",
}
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def check(value, kind, where):
    """Raises AssertionError unless `value` is of the type that the model `kind` says, all the way down."""
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        assert isinstance(value, list), where
        for index, entry in enumerate(value):
            check(entry, match[1], f"{where}[{index}]")
    elif match := re.fullmatch(r"dict\((\w+), (.*)\)", kind):
        assert isinstance(value, dict), where
        for key, entry in value.items():
            check(entry, match[2], f"{where}.{key}")
    elif kind in PLAIN:
        assert isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool)), where
    elif kind != "object":
        check_fields(value, fields_of(kind), where)


def fields_of(kind):
    model = getattr(models, kind, None) or getattr(kubernetes.client.models, kind)
    return {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}


def check_fields(value, fields, where):
    assert isinstance(value, dict), where
    for name, entry in value.items():
        assert name in fields, f"{where}.{name} is not known"
        check(entry, fields[name], f"{where}.{name}")


def load(name):
    return yaml.safe_load((FOLDER / name).read_text())


def test_pytorch_job():
    job = load("pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    check(job, "KubeflowOrgV1PyTorchJob", "job")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"}
    for replica in replicas.values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"  # which is where the operator sets the variables
        assert container["command"][:2] == ["torchrun", "-m"]
        package, name = container["command"][2].rsplit(".", 1)
        assert package == "tutti_torch.examples" and (ROOT / f"examples/torch/{name}.py").is_file()


def test_mpi_job():
    job = load("mpijob.yaml")
    assert (job.pop("apiVersion"), job.pop("kind")) == ("kubeflow.org/v2beta1", "MPIJob")
    check(job.pop("metadata"), "V1ObjectMeta", "job.metadata")
    spec = job.pop("spec")
    assert not job
    check_fields(spec, MPI_JOB_SPEC, "job.spec")
    launcher, worker = spec["mpiReplicaSpecs"]["Launcher"], spec["mpiReplicaSpecs"]["Worker"]
    arguments = launcher["template"]["spec"]["containers"][0]["args"]
    assert int(arguments[arguments.index("-n") + 1]) == worker["replicas"] * spec["slotsPerWorker"]


def test_container_has_what_the_jobs_use():
    text = (FOLDER / "Containerfile").read_text()
    port = load("mpijob.yaml")["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert f"'Port {port['readinessProbe']['tcpSocket']['port']}'" in text
    # The backend is installed with its examples, which the job names as a module.
    assert {"COPY bindings/torch /src/bindings/torch", "COPY examples/torch /src/examples/torch"} <= set(text.splitlines())
    for source in re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists(), source


@pytest.mark.parametrize("path, field", [("pytorchjob.yaml", "nprocPerNod"), ("mpijob.yaml", "slotsPerWorkers")])
def test_a_field_that_is_not_known_is_found(path, field):
    spec = load(path)["spec"]
    spec[field] = 1
    fields = MPI_JOB_SPEC if path == "mpijob.yaml" else fields_of("KubeflowOrgV1PyTorchJobSpec")
    with pytest.raises(AssertionError, match=field):
        check_fields(spec, fields, "job.spec")
