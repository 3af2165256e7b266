"""Type checks of arguments, with clearer errors than those of torch's operator schemas.

Each function returns its value in the form that the operators take. `name` is always `function.argument`, for the error
message.
"""

import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NoReturn

import torch

#: An unfolding: "balanced", "online" or the modes that become the rows.
UnfoldingLike = str | Sequence[int]
#: A family of unfoldings, each given by the modes that become its rows. None means all unfoldings.
FamilyLike = Sequence[Sequence[int]] | None
#: Newton-Schulz coefficients: the name of a table, one row `(a, b, c)`, or one row per step.
CoefficientsLike = str | Sequence[float] | Sequence[Sequence[float]]


def raise_type_error(name: str, expected: str, value: object) -> NoReturn:
    """Raise the TypeError for an argument of the wrong type."""
    function, argument = name.split(".")
    raise TypeError(f"[tensorion.{function}] {argument} must be {expected}, got {value!r}")


def tensor(value: object, name: str) -> torch.Tensor:
    """Check that `value` is a tensor."""
    if not isinstance(value, torch.Tensor):
        function, argument = name.split(".")
        raise TypeError(f"[tensorion.{function}] {argument} must be a Tensor, got {type(value).__name__}")
    return value


def ints(values: Iterable[int], name: str) -> list[int]:
    """Check that `values` are integers."""
    try:
        checked = [_index(value) for value in values]
    except TypeError:
        raise_type_error(name, "a sequence of integers", values)
    for value in checked:
        _check_bits(value, name)
    return checked


def family(values: Iterable[Iterable[int]] | None, name: str) -> list[list[int]]:
    """Check that `values` are sets of modes, at least one. None means all unfoldings and becomes an empty list."""
    if values is None:
        return []
    try:
        checked = [ints(modes, name) for modes in values]
    except TypeError:
        raise_type_error(name, "None or a sequence of sets of modes", values)
    return checked or raise_type_error(name, "None or a sequence of sets of modes", values)


def integer(value: int, name: str) -> int:
    """Check that `value` is an integer."""
    try:
        checked = _index(value)
    except TypeError:
        raise_type_error(name, "an integer", value)
    return _check_bits(checked, name)


def _index(value: Any) -> int:
    """Convert `value` to an integer. Booleans are rejected."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _check_bits(value: int, name: str) -> int:
    """Check that `value` fits into int64, the operators' integer type."""
    if not -(2**63) <= value < 2**63:
        function, argument = name.split(".")
        raise ValueError(f"[tensorion.{function}] {argument} must have at most 63 bits, got {value}")
    return value


def number(value: Any, name: str) -> float:
    """Check that `value` is a real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise_type_error(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        function, argument = name.split(".")
        raise ValueError(f"[tensorion.{function}] {argument} must be finite, got {value!r}") from None


def boolean(value: bool, name: str) -> bool:
    """Check that `value` is a bool."""
    return value if isinstance(value, bool) else raise_type_error(name, "True or False", value)


def string(value: str, name: str) -> str:
    """Check that `value` is a string."""
    return value if isinstance(value, str) else raise_type_error(name, "a string", value)


def unfolding(value: UnfoldingLike, name: str) -> str:
    """Convert an unfolding to a string: "balanced", "online" or, for example, "(0, 2)"."""
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bytes):
            raise TypeError
        return str(tuple(_index(mode) for mode in value))
    except TypeError:
        raise_type_error(name, "'balanced', 'online' or a sequence of modes", value)


def split_sizes(value: int | Sequence[int] | None, name: str) -> list[int]:
    """Convert block sizes to a list: empty for no split, `[k]` for k equal blocks, or the sizes of all blocks."""
    if value is None:
        return []
    expected = "None, a number of equal blocks, or the sizes of at least two blocks"
    try:
        sizes = [_index(value)] if not isinstance(value, Sequence) else [_index(size) for size in value]
    except TypeError:
        raise_type_error(name, expected, value)
    if isinstance(value, Sequence) and len(sizes) < 2:
        function, argument = name.split(".")
        raise ValueError(f"[tensorion.{function}] {argument} must be {expected}, got {value!r}")
    return [_check_bits(size, name) for size in sizes]


def coefficients(value: CoefficientsLike, name: str) -> list[float]:
    """Convert Newton-Schulz coefficients to a flat list of rows `(a, b, c)`."""
    if isinstance(value, str):
        return torch.ops.tensorion.named_coefficients(value)
    expected = "the name of a table, a row (a, b, c) of numbers, or a sequence of such rows"
    if not isinstance(value, Sequence):
        raise_type_error(name, expected, value)
    rows = [value] if value and isinstance(value[0], Real) else value
    flat: list[float] = []
    for row in rows:
        if not isinstance(row, Sequence) or not all(isinstance(entry, Real) for entry in row):
            raise_type_error(name, expected, value)
        if len(row) != 3:
            function, argument = name.split(".")
            raise ValueError(
                f"[tensorion.{function}] {argument} must have 3 numbers in each row, got {len(row)} in {tuple(row)!r}"
            )
        flat += [number(entry, name) for entry in row]
    return flat
