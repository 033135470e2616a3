#!/usr/bin/env python3
"""KServe's manifest against the published schema of a ServingRuntime, and its command line against the daemon.

Usage: kserve.py TELEGRADD MANIFEST. What the schema says of the fields that a manifest may have is below as facts: of
KServe's API serving.kserve.io/v1alpha1 (github.com/kserve/kserve, pkg/apis/serving/v1alpha1/servingruntime_types.go, of
which the custom resource servingruntimes.serving.kserve.io is generated) and of Kubernetes' core/v1 Container, Probe and
ResourceRequirements (kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1). A field that is not there
would be dropped by the cluster without a word, so it is an error here. Exits 77 without PyYAML.
"""

import copy
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML")
    sys.exit(77)

ANY = object()
TEXTS = {"*": str}
QUANTITIES = {"*": (str, int)}


class Required(dict):
    """An object; a name that ends in ! has to be there."""


HTTP_GET = Required({"path": str, "port!": (int, str), "host": str, "scheme": ("HTTP", "HTTPS"), "httpHeaders": [ANY]})
PROBE = Required({"httpGet": HTTP_GET, "exec": ANY, "grpc": ANY, "tcpSocket": ANY, "initialDelaySeconds": int,
                  "timeoutSeconds": int, "periodSeconds": int, "successThreshold": int, "failureThreshold": int,
                  "terminationGracePeriodSeconds": int})
CONTAINER = Required({
    "name!": str, "image": str, "command": [str], "args": [str], "workingDir": str, "imagePullPolicy": str,
    "ports": [Required({"containerPort!": int, "name": str, "hostPort": int, "hostIP": str,
                        "protocol": ("TCP", "UDP", "SCTP")})],
    "env": [Required({"name!": str, "value": str, "valueFrom": ANY})], "envFrom": [ANY],
    "resources": Required({"requests": QUANTITIES, "limits": QUANTITIES, "claims": [ANY]}),
    "volumeMounts": [Required({"name!": str, "mountPath!": str, "readOnly": bool, "subPath": str})],
    "livenessProbe": PROBE, "readinessProbe": PROBE, "startupProbe": PROBE, "lifecycle": ANY, "securityContext": ANY})
RUNTIME = Required({
    "apiVersion!": ("serving.kserve.io/v1alpha1",), "kind!": ("ServingRuntime", "ClusterServingRuntime"),
    "metadata!": Required({"name!": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS}),
    "spec!": Required({
        "supportedModelFormats": [Required({"name!": str, "version": str, "autoSelect": bool, "priority": int})],
        "protocolVersions": [("v1", "v2", "grpc-v1", "grpc-v2")], "containers!": [CONTAINER],
        "multiModel": bool, "disabled": bool, "replicas": int, "hostIPC": bool, "workerSpec": ANY, "volumes": [ANY],
        "nodeSelector": TEXTS, "affinity": ANY, "tolerations": [ANY], "labels": TEXTS, "annotations": TEXTS,
        "imagePullSecrets": [Required({"name": str})], "grpcEndpoint": str, "grpcDataEndpoint": str,
        "httpDataEndpoint": str, "storageHelper": Required({"disabled": bool}), "builtInAdapter": ANY})})


def errors(value, schema, where="manifest"):
    """Each difference from the schema, with its place."""
    if schema is ANY:
        return []
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where}: expected a list"]
        return [e for i, element in enumerate(value) for e in errors(element, schema[0], f"{where}[{i}]")]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where}: expected an object"]
        out = []
        for name, inner in value.items():
            expected = schema.get("*", schema.get(name, schema.get(f"{name}!")))
            out += [f"{where}.{name}: there is no such field"] if expected is None else errors(
                inner, expected, f"{where}.{name}")
        return out + [f"{where}.{name[:-1]}: is missing" for name in schema
                      if name.endswith("!") and name[:-1] not in value]
    if isinstance(schema, tuple) and all(isinstance(s, str) for s in schema):
        return [] if value in schema else [f"{where}: {value!r}, expected one of {schema}"]
    kinds = schema if isinstance(schema, tuple) else (schema,)
    # YAML's true is no number.
    fits = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
    return [] if fits else [f"{where}: {value!r} is of the wrong type"]


def check_the_check(manifest):
    """That what is wrong is seen."""
    def broken(change):
        other = copy.deepcopy(manifest)
        change(other["spec"])
        return errors(other, RUNTIME)

    for change in (lambda s: s.update(modelFormats=[]), lambda s: s.pop("containers"),
                   lambda s: s["containers"][0].pop("name"), lambda s: s["protocolVersions"].append("v3"),
                   lambda s: s["containers"][0]["ports"][0].update(containerPort="8080"),
                   lambda s: s["supportedModelFormats"][0].update(version=1),
                   lambda s: s["supportedModelFormats"][0].update(priority=True),
                   lambda s: s["containers"][0]["readinessProbe"]["httpGet"].update(url="/")):
        assert broken(change), "a manifest that is wrong was taken"


def main():
    daemon, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        manifest = yaml.safe_load(file)
    found = errors(manifest, RUNTIME)
    for error in found:
        print(f"{path}: {error}")
    if found:
        return 1
    check_the_check(manifest)
    container = manifest["spec"]["containers"][0]
    assert container["name"] == "kserve-container", "KServe looks for a container of this name"
    assert container["command"] == ["telegradd"]
    # As many flags as the daemon knows, with values that it takes.
    checked = subprocess.run([daemon, *container["args"], "--check-config"], capture_output=True, text=True, timeout=60)
    print(checked.stdout + checked.stderr, end="")
    http = container["args"][container["args"].index("--http") + 1]
    for port in (container["ports"][0]["containerPort"], container["readinessProbe"]["httpGet"]["port"]):
        assert http.endswith(f":{port}"), "the ports are those of --http"
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
