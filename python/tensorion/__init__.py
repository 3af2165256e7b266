"""Tensorion: Muon for tensors of any order."""

from importlib.metadata import version

from . import _library
from ._lmo import LmoResult, lmo
from ._norms import conv_norm, dual_norm, nuclear_norm, relaxed_norm, spectral_norm
from ._optimizer import Tensorion
from ._param_groups import describe, param_groups
from ._plan import Plan, plan
from ._polar import polar
from ._scratch import release_scratch
from ._unfolding import balanced_unfolding, fold, unfold, unfoldings

__version__ = version("tensorion")

#: Add this path to CMAKE_PREFIX_PATH so that `find_package(Tensorion)` finds the C++ library.
cmake_prefix_path = str(_library.PREFIX)

__all__ = [
    "LmoResult",
    "Plan",
    "Tensorion",
    "balanced_unfolding",
    "cmake_prefix_path",
    "conv_norm",
    "describe",
    "dual_norm",
    "fold",
    "lmo",
    "nuclear_norm",
    "param_groups",
    "plan",
    "polar",
    "relaxed_norm",
    "release_scratch",
    "spectral_norm",
    "unfold",
    "unfoldings",
]
