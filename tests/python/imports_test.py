"""Modules of the package import in one direction: none needs itself, by way of others."""

import ast
import pathlib
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "client/python"

# Imports of the package's own modules inside a function, or for type checkers alone, and why.
LATE = {
    # Loaded when an interpreter starts that may never use tinygrad: nothing else may be.
    ("_telegrad_tinygrad", "telegrad.tinygrad._device"),
    ("_telegrad_tinygrad", "telegrad.tinygrad._execute"),
}


def modules():
    found = {}
    for path in [*PACKAGE.glob("*.py"), *PACKAGE.glob("telegrad/**/*.py")]:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(node, known, where):
    """The modules of `known` that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = node.module or ""
        if node.level:
            package = where if known[where].name == "__init__.py" else where.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            base = ".".join(filter(None, (package, base)))
        names = [f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names]
    return [name for name in names if name in known]


def imports(name, known):
    """What a module imports when it is loaded, and what later or for type checkers alone."""
    now, late = set(), set()
    nodes = [(ast.parse(known[name].read_text(encoding="utf-8")), False)]
    while nodes:
        node, inside = nodes.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            (late if inside else now).update(imported(node, known, name))
        inside |= isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        inside |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        nodes += [(child, inside) for child in ast.iter_child_nodes(node)]
    return now - {name}, late - {name}


def circle(edges):
    """Some modules each of which imports the next, and the last the first; None: there are none."""
    left = {name: set(to) for name, to in edges.items()}
    while free := [name for name, to in left.items() if not to & left.keys()]:
        for name in free:
            del left[name]
    if not left:
        return None
    path = [next(iter(sorted(left)))]
    while path.count(path[-1]) == 1:
        path.append(min(left[path[-1]] & left.keys()))
    return path[path.index(path[-1]):]


class ImportsTest(unittest.TestCase):
    def test_finds_circles(self):
        self.assertIsNone(circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}))
        self.assertEqual(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}), ["b", "c", "b"])

    def test_no_module_needs_itself(self):
        known = modules()
        self.assertIn("telegrad.session", known)
        # The package's face imports everything; who imports its names needs all of it.
        edges = {name: imports(name, known)[0] for name in known}
        self.assertIsNone(circle(edges))

    def test_imports_inside_functions_have_a_reason(self):
        known = modules()
        late = {(name, to) for name in known for to in imports(name, known)[1]}
        self.assertEqual(late, LATE)


if __name__ == "__main__":
    unittest.main()
