"""Kubernetes objects that tests make: what our manifests refer to and the operator of a cluster has to create."""

from pathlib import Path
from typing import Any

from tests.cluster.node import NODE

Object = dict[str, Any]


def namespace(name: str) -> Object:
    """Return a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def secret(where: str, name: str, values: dict[str, str]) -> Object:
    """Return a secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": where}, "stringData": values}


def config_map(where: str, name: str, values: dict[str, str]) -> Object:
    """Return a config map."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": where}, "data": values}


def volume(where: str, name: str, folder: Path) -> list[Object]:
    """Return a persistent volume that is `folder` of the node (root's, as fresh volumes are), and the claim on it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    kept = {
        **common,
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "capacity": {"storage": "1Gi"},
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "claimRef": {"namespace": where, "name": name},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    asked = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{where}-{name}"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{where}-{name}"}, "spec": kept},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": where},
            "spec": asked,
        },
    ]


def pod(where: str, name: str, container: Object, **spec: Any) -> Object:
    """Return a pod of one container that runs once."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": where},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", **container}],
            **spec,
        },
    }
