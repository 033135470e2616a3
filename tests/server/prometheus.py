#!/usr/bin/env python3
"""The alert rules and the dashboard of deploy/ against a daemon and a real Prometheus.

Usage: prometheus.py TELEGRADD ROOT. Every metric that a rule or a panel names must be on the daemon's page; that is
checked without Prometheus. Where `prometheus` and `promtool` (Debian's package prometheus) are in PATH, the rules
are checked by promtool, a Prometheus scrapes the daemon with them, and every expression is asked: none is an error,
and no alert fires. Exits 77 after the first part where they are not there, which CTest takes for "skipped".
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

SKIPPED = 77
METRIC = re.compile(r"\b(telegrad_[a-z_]+)\b")


def expressions_of_rules(path):
    """The expr of each rule, as far as the form of our own file goes: a line, or a folded block of one."""
    out = []
    lines = path.read_text().splitlines()
    for i, line in enumerate(lines):
        if line.strip().startswith("expr:"):
            value = line.split("expr:", 1)[1].strip()
            out.append(lines[i + 1].strip() if value == ">-" else value)
    return out


def expressions_of_dashboard(path):
    dashboard = json.loads(path.read_text())
    out = []
    for panel in dashboard["panels"]:
        assert panel["title"] and panel["targets"], panel
        out += [target["expr"] for target in panel["targets"]]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), "two panels have one id"
    return [e.replace("$__rate_interval", "1m").replace('=~"$instance"', '=~".+"') for e in out]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def ask(port, path):
    return json.loads(get(f"http://127.0.0.1:{port}/api/v1/{path}"))["data"]


def wait_for(what, condition):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"{what} did not happen")


def names_on(page):
    names = set(re.findall(r"^# TYPE (\S+)", page, re.M))
    for name in re.findall(r"^# TYPE (\S+) histogram", page, re.M):
        names |= {name + "_bucket", name + "_sum", name + "_count"}
    return names


def check_with_prometheus(rules, expressions, daemon_port, folder):
    subprocess.run(["promtool", "check", "rules", str(rules)], check=True)
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n"
        f"scrape_configs:\n  - job_name: telegrad\n    static_configs: [{{targets: ['127.0.0.1:{daemon_port}']}}]\n")
    port = free_port()
    with open(folder / "log", "w") as log, subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log) as prometheus:
        try:
            wait_for("a scrape", lambda: any(
                r["value"][1] == "1" for r in ask(port, "query?query=up")["result"]))
            for expression in expressions:
                result = ask(port, "query?query=" + urllib.parse.quote(expression))
                assert result["resultType"] == "vector", expression
            wait_for("an evaluation", lambda: all(
                rule["health"] == "ok" for group in ask(port, "rules")["groups"] for rule in group["rules"]))
            firing = [a["labels"]["alertname"] for a in ask(port, "alerts")["alerts"] if a["state"] == "firing"]
            assert not firing, f"{firing} fire at a daemon that is well"
        finally:
            prometheus.terminate()


def main():
    daemon_path, root = sys.argv[1], pathlib.Path(sys.argv[2])
    rules = root / "deploy/prometheus/telegrad.rules.yml"
    expressions = expressions_of_rules(rules) + expressions_of_dashboard(root / "deploy/grafana/telegrad.json")
    assert len(expressions) > 20, expressions
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
            [daemon_path, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--cpu-memory", "268435456",
             "--compile-workers", "1", "--log-level", "off"], stdout=subprocess.PIPE, text=True) as daemon:
        try:
            port = None
            for line in daemon.stdout:
                found = re.match(r"metrics on http://127.0.0.1:(\d+)", line)
                port = found[1] if found else port
                if line.startswith("listening on"):
                    break
            names = names_on(get(f"http://127.0.0.1:{port}/metrics"))
            unknown = {n for e in expressions for n in METRIC.findall(e)} - names
            assert not unknown, f"no such metrics: {sorted(unknown)}"
            if shutil.which("prometheus") is None or shutil.which("promtool") is None:
                print("prometheus is not installed; the names of metrics were checked")
                return SKIPPED
            check_with_prometheus(rules, expressions, port, pathlib.Path(folder))
        finally:
            daemon.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
