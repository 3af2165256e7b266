"""Which share of the elements each algorithm updates."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

#: Below this share of Tensorion the constructor warns: it is hardly what the user wanted.
EXPECTED = 0.1


def summary(groups: Sequence[Mapping[str, Any]]) -> str:
    """One line, such as "97.1 % of 11,181,642 elements: tensorion; 2.9 %: adamw"."""
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
        f"[tensorion.Tensorion] little goes to Tensorion: {summary(groups)}. Matrices among the others hold "
        f"{100 * matrices / total:.1f} %; with min_order=2 they go to Tensorion too. tensorion.describe(optimizer) "
        "lists all parameters.",
        stacklevel=3,  # where the optimizer is made
    )
