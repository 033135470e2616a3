"""Sizes that each run decides: integers computed from the variables of a graph.

A Size is a sum of products of atoms. An atom is a variable, or an operation that no sum of products can express: a
quotient, a remainder, a maximum. This form is unique, so two sizes that are written in different ways are the same
object to `==`, in sets and in shapes whenever the server takes them for equal. `a == b` means equal whatever the
variables are; `a < b` is answered from the bounds of the variables, and raises where they leave it open.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Union

from telegrad.errors import Code, TelegradError

Dim = Union[int, "Size"]


class Undecided(TelegradError):
    """A question about sizes that each run would answer differently."""

    def __init__(self, question: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"whether {question} depends on the variables of a run; give them other "
                         "bounds, or use fixed sizes")


class Atom:
    """A variable ("var", its number), or an operation on two sizes. Atoms of equal text are equal."""

    __slots__ = ("op", "args", "text", "low", "high")

    def __init__(self, op: str, args: tuple[Any, ...], text: str, low: int, high: int) -> None:
        self.op, self.args, self.text, self.low, self.high = op, args, text, low, high


_Terms = dict[tuple[str, ...], int]  # the texts of a product's atoms, in order -> its coefficient


class Size:
    __slots__ = ("_terms", "_atoms", "_key", "low", "high")

    def __init__(self, terms: _Terms, atoms: Mapping[str, Atom]) -> None:
        self._terms, self._atoms = terms, atoms
        self._key = tuple(sorted(terms.items()))
        bounds = [_scaled(coefficient, [atoms[text] for text in product]) for product, coefficient in terms.items()]
        self.low, self.high = (sum(pair[i] for pair in bounds) for i in (0, 1))

    @property
    def terms(self) -> list[tuple[list[Atom], int]]:
        """Products of atoms and their coefficients, in an order that equal sizes have in common."""
        return [([self._atoms[text] for text in product], coefficient) for product, coefficient in self._key]

    def value(self, variables: Mapping[int, int]) -> int:
        """For the values of the variables, by number."""
        total = 0
        for product, coefficient in self._key:
            for text in product:
                atom = self._atoms[text]
                if atom.op == "var":
                    coefficient *= variables[atom.args[0]]
                else:
                    coefficient *= _VALUES[atom.op](*(value_of(a, variables) for a in atom.args))
            total += coefficient
        return total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: Dim) -> bool:
        difference = self - other
        if highest(difference) < 0 or lowest(difference) >= 0:
            return highest(difference) < 0
        raise Undecided(f"{self} is less than {other}")

    def __ge__(self, other: Dim) -> bool:
        return not self < other

    def __gt__(self, other: Dim) -> bool:
        return not self < other + 1

    def __le__(self, other: Dim) -> bool:
        return self < other + 1

    def __bool__(self) -> bool:
        return self != 0 if self.low > 0 or self.high < 0 else not self <= 0

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms = dict(self._terms)
        for product, coefficient in _terms_of(other).items():
            terms[product] = terms.get(product, 0) + coefficient
        return _made(terms, self._atoms, _atoms_of(other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1 if isinstance(other, (int, Size)) else NotImplemented

    def __rsub__(self, other: int) -> Dim:
        return self * -1 + other if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms: _Terms = {}
        for left, a in self._terms.items():
            for right, b in _terms_of(other).items():
                product = tuple(sorted(left + right))
                terms[product] = terms.get(product, 0) + a * b
        return _made(terms, self._atoms, _atoms_of(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other) if isinstance(other, (int, Size)) else NotImplemented

    def __rfloordiv__(self, other: int) -> Dim:
        return floordiv(other, self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        return floormod(self, other) if isinstance(other, (int, Size)) else NotImplemented

    def __rmod__(self, other: int) -> Dim:
        return floormod(other, self) if isinstance(other, int) else NotImplemented

    def __repr__(self) -> str:
        return _text(self._terms)


def variable(number: int, name: str, low: int, high: int) -> Size:
    return _of_atom("var", (number,), name, low, high)


def lowest(dim: Dim) -> int:
    return dim.low if isinstance(dim, Size) else dim


def highest(dim: Dim) -> int:
    return dim.high if isinstance(dim, Size) else dim


def product(dims: Iterable[Dim]) -> Dim:
    out: Dim = 1
    for dim in dims:
        out = out * dim
    return out


def value_of(dim: Dim, variables: Mapping[int, int]) -> int:
    return dim.value(variables) if isinstance(dim, Size) else dim


def floordiv(a: Dim, b: Dim) -> Dim:
    """Of a positive divisor. What it divides without a rest is a sum of products again."""
    if lowest(b) <= 0:
        raise Undecided(f"the divisor {b} is positive")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    whole: Dim = 0
    rest = a
    if isinstance(b, int) or len(b._terms) == 1:
        ((divisor, factor),) = _terms_of(b).items()
        kept: _Terms = {}
        divided: _Terms = {}
        for product, coefficient in _terms_of(a).items():
            left = _without(product, divisor)
            if left is None or coefficient % factor:
                kept[product] = coefficient
            else:
                divided[left] = coefficient // factor
        whole, rest = _made(divided, _atoms_of(a)), _made(kept, _atoms_of(a))
    if lowest(rest) >= 0 and highest(rest) < lowest(b):
        return whole
    if isinstance(rest, int) and isinstance(b, int):
        return whole + rest // b
    return whole + _operation("floordiv", rest, b)


def floormod(a: Dim, b: Dim) -> Dim:
    return a - floordiv(a, b) * b


def largest(a: Dim, b: Dim) -> Dim:
    difference = a - b
    if lowest(difference) >= 0:
        return a
    return b if highest(difference) <= 0 else _operation("max", a, b)


def smallest(a: Dim, b: Dim) -> Dim:
    return -largest(-a, -b)


def _operation(op: str, a: Dim, b: Dim) -> Size:
    if op == "max":
        low, high = max(lowest(a), lowest(b)), max(highest(a), highest(b))
    else:
        corners = [x // y for x in (lowest(a), highest(a)) for y in (lowest(b), highest(b))]
        low, high = min(corners), max(corners)
    text = f"max({a}, {b})" if op == "max" else f"({a}) // ({b})"
    return _of_atom(op, (a, b), text, low, high)


_VALUES: dict[str, Callable[[int, int], int]] = {"floordiv": lambda a, b: a // b, "max": max}


def _of_atom(op: str, args: tuple[Any, ...], text: str, low: int, high: int) -> Size:
    return Size({(text,): 1}, {text: Atom(op, args, text, low, high)})


def _terms_of(dim: Dim) -> _Terms:
    return dim._terms if isinstance(dim, Size) else {(): dim} if dim else {}


def _atoms_of(dim: Dim) -> Mapping[str, Atom]:
    return dim._atoms if isinstance(dim, Size) else {}


def _made(terms: _Terms, *atoms: Mapping[str, Atom]) -> Dim:
    """A number where no atom is left."""
    terms = {product: coefficient for product, coefficient in terms.items() if coefficient}
    if not any(terms):
        return terms.get((), 0)
    used = {text for product in terms for text in product}
    return Size(terms, {text: atom for known in atoms for text, atom in known.items() if text in used})


def _without(product: tuple[str, ...], divisor: tuple[str, ...]) -> tuple[str, ...] | None:
    left = list(product)
    for text in divisor:
        if text not in left:
            return None
        left.remove(text)
    return tuple(left)


def _scaled(coefficient: int, atoms: list[Atom]) -> tuple[int, int]:
    low = high = coefficient
    for atom in atoms:
        corners = [a * b for a in (low, high) for b in (atom.low, atom.high)]
        low, high = min(corners), max(corners)
    return low, high


def _text(terms: _Terms) -> str:
    parts = []
    for product, coefficient in sorted(terms.items(), key=lambda item: (not item[0], item[0])):
        factors = [f"({text})" if " " in text and not text.startswith("max(") else text for text in product]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        parts.append(" * ".join(factors))
    return " + ".join(parts)
