"""--version, manual pages and completion of every program: the pages have every flag of --help, roff has no
warnings, each shell accepts its script, and bash completes commands, flags and values by it."""

import re
import shutil
import subprocess
import unittest

import support
from support import DEVICE_WORKER, OPT, TELEGRAD, TELEGRADD, VERSION, WORKER, run

PROGRAMS = {"telegradd": TELEGRADD, "telegrad": TELEGRAD, "telegrad-opt": OPT}


def flags_of_help(text):
    return set(re.findall(r"--([a-z][a-z-]*)", "\n".join(re.findall(r"^ +(?:-\w, )?--[a-z-]+", text, re.M))))


def complete(name, words):
    """What bash offers for the last of `words`."""
    script = run(PROGRAMS[name], "--generate=bash")
    function = "_" + name.replace("-", "_")
    quoted = " ".join(f"'{word}'" for word in words)
    shell = f"{script}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n{function}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    return run("bash", "--norc", text=shell).split()


class PagesTest(unittest.TestCase):
    def test_versions_agree(self):
        workers = {"telegrad-compile-worker": WORKER, "telegrad-device-worker": DEVICE_WORKER}
        for name, program in {**PROGRAMS, **workers}.items():
            self.assertEqual(run(program, "--version"), f"{name} {VERSION}\n")

    @unittest.skipIf(subprocess.run(["/usr/bin/python3", "-c", "import grpc, numpy"], stderr=subprocess.DEVNULL,
                                    check=False).returncode != 0, "grpcio or NumPy is not installed")
    def test_python_has_the_same_version(self):
        env = {**support.CLEAN, "PYTHONPATH": str(support.ROOT / "client" / "python")}
        self.assertEqual(run("/usr/bin/python3", "-B", "-m", "telegrad", "--version", env=env), f"telegrad {VERSION}\n")

    def test_commands_know_their_version_too(self):
        self.assertEqual(run(TELEGRAD, "run", "--version"), f"telegrad {VERSION}\n")

    def test_manual_pages_have_every_flag(self):
        for name, program in PROGRAMS.items():
            page = run(program, "--generate=man").replace("\\-", "-")
            commands = re.findall(r"^\.SS \"telegrad (\w+)", page, re.M)
            helps = [run(program, c, "--help") for c in commands] or [run(program, "--help")]
            named = set(re.findall(r"\\fB--([a-z][a-z-]*)", page))
            for text in helps:
                self.assertEqual(flags_of_help(text) - named, set(), name)
            self.assertGreater(len(named), 15, name)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_roff_has_no_warnings(self):
        for program in PROGRAMS.values():
            page = run(program, "--generate=man")
            result = subprocess.run(["groff", "-man", "-ww", "-z", "-K", "utf8"], input=page, encoding="utf-8",
                                    stderr=subprocess.PIPE, timeout=60, check=True)
            self.assertEqual(result.stderr, "")

    def test_shells_accept_their_scripts(self):
        for shell, check in {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "-n", "/dev/stdin"]}.items():
            if shutil.which(shell) is None:
                continue
            for program in PROGRAMS.values():
                run(*check, text=run(program, f"--generate={shell}"))

    def test_bash_completes(self):
        self.assertEqual(complete("telegrad", ["telegrad", "tr"]), ["train"])
        self.assertEqual(complete("telegrad", ["telegrad", "train", "--ep"]), ["--epochs"])
        self.assertNotIn("--epochs", complete("telegrad", ["telegrad", "run", "--"]))
        self.assertEqual(complete("telegradd", ["telegradd", "--log-level", "w"]), ["warning"])
        self.assertEqual(complete("telegradd", ["telegradd", "--log-level", "=", "de"]), ["debug"])
        self.assertEqual(complete("telegrad-opt", ["telegrad-opt", "--emit", "=", ""]),
                         ["uop", "llvm", "c", "object", "ptx", "asm"])
        self.assertIn("tests/data/digits/", [f"{f}/" for f in complete("telegradd", ["telegradd", "--jwt-keys", "tests/data/di"])])
        self.assertEqual(complete("telegradd", ["telegradd", "--kernels", "1"]), [])

    def test_unknown_form(self):
        self.assertIn("is not one of man, bash, zsh, fish", run(TELEGRADD, "--generate=html", code=2))


if __name__ == "__main__":
    unittest.main()
