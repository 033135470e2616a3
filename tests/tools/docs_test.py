#!/usr/bin/env python3
"""The check of the documents finds links that lead nowhere, and headings that are not there."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docs

HEADINGS = "# A page\n\n## Rows, `code` and [links](a.md)\n\n## Twice\n\n## Twice\n\n```\n# a comment\n```\n"


class DocsTest(unittest.TestCase):
    def problems(self, text):
        """What the check says of a page docs/b/c.md with this text, beside a page docs/a.md with HEADINGS."""
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs", "b"))
            for name, content in (("README.md", ""), ("docs/a.md", HEADINGS), ("docs/b/c.md", text)):
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(content)
            return docs.check(root)[0]

    def test_links_that_lead_somewhere(self):
        self.assertEqual(self.problems("[a](../a.md) [b](../a.md#a-page) [c](../a.md#rows-code-and-links)\n"), [])
        self.assertEqual(self.problems("[a](../a.md#twice) [b](../a.md#twice-1)\n"), [])
        self.assertEqual(self.problems("# Here\n\n[a](#here) [b](https://a.b/c#d)\n"), [])
        self.assertEqual(self.problems("```\n[a](nowhere.md)\n```\n"), [])

    def test_links_that_lead_nowhere(self):
        self.assertEqual(self.problems("[a](a.md)\n"), ["docs/b/c.md: the link to a.md leads nowhere"])
        self.assertEqual(self.problems("[a](../a.md#twice-2)\n"), ["docs/b/c.md: ../a.md has no heading for #twice-2"])
        self.assertEqual(self.problems("[a](../a.md#a-comment)\n"),
                         ["docs/b/c.md: ../a.md has no heading for #a-comment"])
        self.assertEqual(self.problems("[a](#there)\n"), ["docs/b/c.md: docs/b/c.md has no heading for #there"])


if __name__ == "__main__":
    unittest.main()
