"""Loads the operators, `torch.ops.tensorion.*`, when imported.

The C++ interface of torch changes from one minor version to the next. The package therefore has a folder `torch-2.N`,
with libraries, headers and CMake files, for each version that it was built with; the torch that runs decides.
"""

import re
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parent

#: The first and the last version of torch that are tested; pyproject.toml has the same.
SUPPORTED = ("2.7", "2.15")


def _listed(versions: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(versions[:-1]), *versions[-1:]]))


def choose(package: Path, torch_version: str) -> Path:
    """The folder of `package` that was built with the minor version of torch that runs."""
    found = re.match(r"\d+\.\d+", torch_version)
    minor = found.group() if found else torch_version
    folder = package / f"torch-{minor}"
    if folder.is_dir():
        return folder
    built = sorted((path.name.removeprefix("torch-") for path in package.glob("torch-*")), key=_as_numbers)
    has = f"was built for torch {_listed(built)}" if built else "has no libraries"
    if not _as_numbers(SUPPORTED[0]) <= _as_numbers(minor) <= _as_numbers(SUPPORTED[1]):
        advice = f"Tensorion supports torch {SUPPORTED[0]} to {SUPPORTED[1]}"
        advice += f": `pip install 'torch=={built[-1]}.*'`." if built else "; install it again with one of these."
    else:
        advice = f"Install it again from its source, which builds it for torch {minor}: "
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
            f"{error.__cause__ or error}. Tensorion must be built with the torch that runs it: "
            "install it again from its source by `pip install --force-reinstall --no-deps --no-binary tensorion "
            "tensorion`."
        ) from error


#: The install tree of the C++ library for the torch that runs.
PREFIX = choose(PACKAGE, torch.__version__)
load(PREFIX / "lib" / "libtensorion_ops.so")
