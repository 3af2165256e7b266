"""Loads the operators `torch.ops.tensorion.*` on import.

The C++ ABI of torch changes with every minor version. The package therefore has one folder `torch-2.N`, with libraries,
headers and CMake files, for each version of torch that it was built for. The installed torch decides which one is used.
"""

import re
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parent

#: The first and the last version of torch that are tested. Keep them equal to those in pyproject.toml.
SUPPORTED = ("2.7", "2.15")


def _listed(versions: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(versions[:-1]), *versions[-1:]]))


def choose(package: Path, torch_version: str) -> Path:
    """Return the folder of `package` that was built for the minor version of `torch_version`."""
    found = re.match(r"\d+\.\d+", torch_version)
    minor = found.group() if found else torch_version
    folder = package / f"torch-{minor}"
    if folder.is_dir():
        return folder
    built = sorted((path.name.removeprefix("torch-") for path in package.glob("torch-*")), key=_as_numbers)
    has = f"was built for torch {_listed(built)}" if built else "has no libraries"
    if not _as_numbers(SUPPORTED[0]) <= _as_numbers(minor) <= _as_numbers(SUPPORTED[1]):
        advice = f"Tensorion supports torch {SUPPORTED[0]} to {SUPPORTED[1]}"
        advice += f": `pip install 'torch=={built[-1]}.*'`." if built else "; reinstall it with one of these."
    else:
        advice = f"Reinstall it from source to build it for torch {minor}: "
        advice += "`pip install --force-reinstall --no-deps --no-binary tensorion tensorion`"
        advice += f", or install a torch that it was built for: `pip install 'torch=={built[-1]}.*'`." if built else "."
    raise ImportError(f"[tensorion] this installation of tensorion {has}, got torch {torch_version}. {advice}")


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def load(path: Path) -> None:
    """Register the operators of the library at `path` with torch."""
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise ImportError(
            f"[tensorion] {path} could not be loaded with torch {torch.__version__}: "
            f"{error.__cause__ or error}. Tensorion must be built with the torch that loads it. Reinstall it from "
            "source with `pip install --force-reinstall --no-deps --no-binary tensorion tensorion`."
        ) from error


#: The install prefix of the C++ library for the installed torch.
PREFIX = choose(PACKAGE, torch.__version__)
load(PREFIX / "lib" / "libtensorion_ops.so")
