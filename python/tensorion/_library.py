"""Loads the operators, `torch.ops.tensorion.*`, when imported."""

from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parent


def load(path: Path) -> None:
    """Register the operators of the library at `path` with torch."""
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise ImportError(
            f"[tensorion] {path} could not be loaded with torch {torch.__version__}: "
            f"{error.__cause__ or error}. Tensorion must be built with the torch that runs it: "
            "install it again with `pip install --no-build-isolation`."
        ) from error


load(PACKAGE / "lib" / "libtensorion_ops.so")
