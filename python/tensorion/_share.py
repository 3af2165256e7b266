"""The share of the elements that each algorithm updates."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

#: The constructor warns if Tensorion updates a smaller share, which is probably not what the user wants.
EXPECTED = 0.1


def summary(groups: Sequence[Mapping[str, Any]]) -> str:
    """Summarize the shares in one line, for example "97.1 % of 11,181,642 elements: tensorion; 2.9 %: adamw"."""
    elements: dict[str, int] = {}
    for group in groups:
        count = sum(param.numel() for param in group["params"])
        elements[group["algorithm"]] = elements.get(group["algorithm"], 0) + count
    total = sum(elements.values())
    if not total:
        return "no elements"
    shares = sorted(elements.items(), key=lambda item: -item[1])
    parts = [f"{100 * count / total:.1f} %: {algorithm}" for algorithm, count in shares if count]
    parts[0] = parts[0].replace("%:", f"% of {total:,} elements:", 1)
    return "; ".join(parts)


def warn_if_small(groups: Sequence[Mapping[str, Any]]) -> None:
    """Warn if Tensorion updates less than a tenth of the elements although `min_order=2` would give it more."""
    total = sum(param.numel() for group in groups for param in group["params"])
    solved = sum(param.numel() for group in groups if group["algorithm"] == "tensorion" for param in group["params"])
    if solved >= EXPECTED * total:
        return
    others = [param for group in groups if group["algorithm"] != "tensorion" for param in group["params"]]
    matrices = sum(param.numel() for param in others if sum(size > 1 for size in param.shape) >= 2)
    if not matrices:
        return
    warnings.warn(
        f"[tensorion.Tensorion] Tensorion updates few of the elements: {summary(groups)}. With min_order=2 it would "
        f"also update the matrices, {100 * matrices / total:.1f} % of the elements. tensorion.describe(optimizer) "
        "lists all parameters.",
        stacklevel=3,  # the caller of the constructor
    )
