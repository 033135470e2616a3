#!/usr/bin/env python3
"""The check of words catches what it is there to catch, and nothing in names, code and comments."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import words


class WordsTest(unittest.TestCase):
    def findings(self, path, text):
        """What the check says of a tree whose only text is `text` in `path`."""
        with tempfile.TemporaryDirectory() as root:
            for name, content in (("README.md", ""), (path, text)):
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(content)
            return words.check(root)[0]

    def assert_caught(self, path, text, line, word):
        found = self.findings(path, text)
        self.assertEqual(len(found), 1, (text, found))
        self.assertTrue(found[0].startswith(f'{path}:{line}: "{word}": '), found[0])

    def assert_allowed(self, path, text):
        self.assertEqual(self.findings(path, text), [])

    def test_pages(self):
        self.assert_caught("README.md", "A kernel.\nIts worker is gone.\n", 2, "gone")
        self.assert_caught("docs/a.md", "Then the worker dies.\n", 1, "dies")
        self.assert_caught("docs/a/b.md", "Then the worker dies.\n", 1, "dies")
        self.assert_caught("docs/a.md", "```\ncode\n```\n\nThe server knows\nthe key.\n", 5, "knows")
        self.assert_caught("docs/a.md", "REDUCE folds axes to size 1.\n", 1, "folds axes")
        self.assert_caught("docs/a.md", "Whoever calls pays.\n", 1, "Whoever")

    def test_messages_and_help(self):
        self.assert_caught("engine/a/a.cc", 'return Internal("the file is gone");\n', 1, "gone")
        self.assert_caught("server/flags.def", '\nFLAG("x", "Seconds until the daemon gives up")\n', 2, "gives up")
        self.assert_caught("client/a.h", 'f("see https://a.b, it wants TLS");  // why\n', 1, "wants")
        self.assert_caught("devices/a.cc", r'f("it said \"x\" and died");' + "\n", 1, "died")
        self.assert_caught("proto/telegrad/v1/a.proto", "message A {}  // the server forgets it\n", 1, "forgets")

    def test_names_code_and_comments_are_allowed(self):
        self.assert_allowed("docs/a.md", "The rule `folded over axes`; constant folding folds constants.\n")
        self.assert_allowed("docs/a.md", "```\nkill it until it died\n```\n")
        self.assert_allowed("engine/a.cc", 'f("gone");  // "it died while nobody looked"\n')
        self.assert_allowed("engine/a.cc", '#include "engine/a/gone b.h"\nbool want = Known(wants);\n')
        self.assert_allowed("engine/a_test.cc", 'f("the input is gone");\n')
        self.assert_allowed("tests/a.cc", 'f("the input is gone");\n')
        self.assert_allowed("docs/a.md", "A deadline, an unknown handle, a handover.\n")


if __name__ == "__main__":
    unittest.main()
