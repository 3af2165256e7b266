"""Checks that torch's operator schemas leave to a `RuntimeError` without a clear message."""

import operator
from collections.abc import Iterable

import torch


def tensor(value: object, name: str) -> torch.Tensor:
    """`value`, which must be a tensor. `name` is `function.argument`, here and below."""
    if not isinstance(value, torch.Tensor):
        function, argument = name.split(".")
        raise TypeError(f"[tensorion.{function}] {argument} must be a Tensor, got {type(value).__name__}")
    return value


def ints(values: Iterable[int], name: str) -> list[int]:
    """`values`, which must be integers."""
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        function, argument = name.split(".")
        raise TypeError(
            f"[tensorion.{function}] {argument} must be a sequence of integers, got {values!r}"
        ) from None
