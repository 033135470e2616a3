"""What the README's commands name is there after its first command: programs are among the targets that the quickstart builds,
in the folder that the README says, and files are in the tree."""

import re
import unittest

from support import BUILD, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = "\n".join(re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S))


class ReadmeTest(unittest.TestCase):
    def test_programs_are_built_by_the_quickstart(self):
        quickstart = (ROOT / "deploy" / "quickstart.sh").read_text(encoding="utf-8")
        targets = re.search(r"^targets=\((.*?)\)$", quickstart, re.M)[1].split()
        programs = re.findall(r"build/release/([\w/]+)", COMMANDS)
        self.assertGreater(len(programs), 2)
        rules = (BUILD / "build.ninja").read_text(encoding="utf-8")
        for program in programs:
            self.assertIn(program.rsplit("/", 1)[1], targets)
            self.assertRegex(rules, rf"(?m)^build {program}: CXX_EXECUTABLE_LINKER", program)

    def test_files_are_in_the_tree(self):
        variables = dict(re.findall(r"^(\w+)=(\S+)$", COMMANDS, re.M))
        text = re.sub(r"\$(\w+)", lambda m: variables.get(m[1], m[0]), COMMANDS)
        files = set(re.findall(r"(?<![\w/.])(?:\./)?((?:deploy|tests|client)/[\w/.]+)", text))
        self.assertGreater(len(files), 5)
        for name in files:
            self.assertTrue((ROOT / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
