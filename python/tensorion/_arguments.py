"""Checks that torch's operator schemas leave to a `RuntimeError` without a clear message.

`name` is `function.argument` throughout.
"""

import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NoReturn

import torch

#: Which unfolding: "balanced", "online" or the modes that become the rows.
UnfoldingLike = str | Sequence[int]
#: A family of unfoldings: the modes that become the rows of each. None for all.
FamilyLike = Sequence[Sequence[int]] | None
#: Newton-Schulz coefficients: the name of a set, one row `(a, b, c)`, or a row for each step.
CoefficientsLike = str | Sequence[float] | Sequence[Sequence[float]]


def refuse(name: str, expected: str, value: object) -> NoReturn:
    function, argument = name.split(".")
    raise TypeError(f"[tensorion.{function}] {argument} must be {expected}, got {value!r}")


def tensor(value: object, name: str) -> torch.Tensor:
    """`value`, which must be a tensor."""
    if not isinstance(value, torch.Tensor):
        function, argument = name.split(".")
        raise TypeError(f"[tensorion.{function}] {argument} must be a Tensor, got {type(value).__name__}")
    return value


def ints(values: Iterable[int], name: str) -> list[int]:
    """`values`, which must be integers."""
    try:
        known = [_index(value) for value in values]
    except TypeError:
        refuse(name, "a sequence of integers", values)
    for value in known:
        _check_bits(value, name)
    return known


def family(values: Iterable[Iterable[int]] | None, name: str) -> list[list[int]]:
    """`values`, which must be a sequence of sets of modes, at least one; None for all."""
    if values is None:
        return []
    try:
        known = [ints(modes, name) for modes in values]
    except TypeError:
        refuse(name, "None or a sequence of sets of modes", values)
    return known or refuse(name, "None or a sequence of sets of modes", values)


def integer(value: int, name: str) -> int:
    """`value`, which must be an integer."""
    try:
        known = _index(value)
    except TypeError:
        refuse(name, "an integer", value)
    return _check_bits(known, name)


def _index(value: Any) -> int:
    """`value` as an integer; True and False are none."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _check_bits(value: int, name: str) -> int:
    """`value`, which must fit into the operators' integers."""
    if not -(2**63) <= value < 2**63:
        function, argument = name.split(".")
        raise ValueError(f"[tensorion.{function}] {argument} must have at most 63 bits, got {value}")
    return value


def number(value: Any, name: str) -> float:
    """`value`, which must be a real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        function, argument = name.split(".")
        raise ValueError(f"[tensorion.{function}] {argument} must be finite, got {value!r}") from None


def boolean(value: bool, name: str) -> bool:
    """`value`, which must be True or False."""
    return value if isinstance(value, bool) else refuse(name, "True or False", value)


def text(value: str, name: str) -> str:
    """`value`, which must be a string."""
    return value if isinstance(value, str) else refuse(name, "a string", value)


def unfolding(value: UnfoldingLike, name: str) -> str:
    """A strategy as the operators take it: "balanced", "online" or "(0, 2)"."""
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bytes):
            raise TypeError
        return str(tuple(_index(mode) for mode in value))
    except TypeError:
        refuse(name, "'balanced', 'online' or a sequence of modes", value)


def split_sizes(value: int | Sequence[int] | None, name: str) -> list[int]:
    """Blocks as the operators take them: none, `[k]` for k equal ones, or the sizes of at least two."""
    if value is None:
        return []
    expected = "None, a number of equal blocks, or the sizes of at least two"
    try:
        sizes = [_index(value)] if not isinstance(value, Sequence) else [_index(size) for size in value]
    except TypeError:
        refuse(name, expected, value)
    if isinstance(value, Sequence) and len(sizes) < 2:
        function, argument = name.split(".")
        raise ValueError(f"[tensorion.{function}] {argument} must be {expected}, got {value!r}")
    return [_check_bits(size, name) for size in sizes]


def coefficients(value: CoefficientsLike, name: str) -> list[float]:
    """Rows `(a, b, c)`, one after the other."""
    if isinstance(value, str):
        return torch.ops.tensorion.named_coefficients(value)
    expected = "a name, a row (a, b, c) of numbers or a sequence of such rows"
    if not isinstance(value, Sequence):
        refuse(name, expected, value)
    rows = [value] if value and isinstance(value[0], Real) else value
    flat: list[float] = []
    for row in rows:
        if not isinstance(row, Sequence) or not all(isinstance(entry, Real) for entry in row):
            refuse(name, expected, value)
        if len(row) != 3:
            function, argument = name.split(".")
            raise ValueError(
                f"[tensorion.{function}] {argument} must have 3 numbers in each row, got {len(row)} in {tuple(row)!r}"
            )
        flat += [number(entry, name) for entry in row]
    return flat
