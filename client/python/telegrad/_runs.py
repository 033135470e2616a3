"""What a run decides: the values of a graph's variables, and with them the shapes of its slots.

A variable that is a size of an input is that of the array that the input was given. All other sizes, and the sizes of
further inputs, follow.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from telegrad._size import Dim, Size, value_of
from telegrad.errors import invalid
from telegrad.graph import Slot, Variable


def solved(slots: Iterable[Slot], shapes: Mapping[str, tuple[int, ...]], variables: Mapping[str, Variable],
           given: Mapping[str, int]) -> dict[int, int]:
    """The variables of a run, by id: those that are `given`, and those that are sizes of `shapes`, by slot."""
    for name in given:
        if name not in variables:
            raise invalid(f"there is no variable {name!r}")
    values = {variables[name].id: int(value) for name, value in given.items()}
    known = [slot for slot in slots if slot.name in shapes]
    for slot in known:
        for want, have in zip(slot.shape, shapes[slot.name]):
            if isinstance(want, Size) and (number := _variable_of(want)) is not None:
                values.setdefault(number, have)
    for name, v in variables.items():
        if v.id not in values and not v.used:
            continue
        if v.id not in values:
            raise invalid(f"variable {name!r} has no value")
        if not v.min <= values[v.id] <= v.max or values[v.id] % v.multiple:
            raise invalid(f"variable {name!r} is {values[v.id]}, expected a multiple of {v.multiple} from {v.min} to {v.max}")
    for slot in known:
        wanted = shape_of(slot.shape, values)
        if shapes[slot.name] != wanted:
            raise invalid(f"input {slot.name!r} is {list(shapes[slot.name])}, expected {list(wanted)} for {list(slot.shape)}")
    return values


def shape_of(shape: Sequence[Dim], values: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(value_of(size, values) for size in shape)


def _variable_of(size: Size) -> int | None:
    """The number of the variable that a size is."""
    (atoms, coefficient), *more = size.terms
    if more or coefficient != 1 or len(atoms) != 1 or atoms[0].op != "var":
        return None
    number: int = atoms[0].args[0]
    return number
