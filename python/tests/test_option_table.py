"""The tables of options in C++ and Python agree, and everything that lists options agrees with them.

The schema of the operator `check_options` is the table of the C++ library. tests/optimizer_state_test.cpp checks the
serialization, and tests/program/test_option_flags.py checks the flags of the program.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
from support import parameters

from tensorion import Tensorion
from tensorion._options import TABLE, arguments, checked

ROOT = Path(__file__).parents[2]
NAMES = [option.name for option in TABLE]
SIGNATURE = {
    name: parameter.default
    for name, parameter in inspect.signature(Tensorion).parameters.items()
    if name not in ("params", "process_group")
}
#: Arguments of the operators that are not options.
OTHERS = {"decide", "lr_tensor", "found_inf"}
STEPS = {"tensorion": "step_", "adamw": "adamw_step_", "sgd": "sgd_step_"}


def schema(operator):
    """Return the keyword-only arguments of an operator with their defaults."""
    found = getattr(torch.ops.tensorion, operator).default._schema.arguments
    return {argument.name: argument.default_value for argument in found if argument.kwarg_only}


def converted(defaults):
    """Convert options to the form that operators take."""
    return checked({}, defaults, ranges=True)


def test_both_languages_have_the_same_options():
    # In C++ the algorithm of a param group is an option too.
    assert list(schema("check_options")) == [*NAMES, "algorithm", "ranges"]


def test_signature_lists_the_options():
    assert list(SIGNATURE) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_defaults(name):
    default = schema("check_options")[name]
    value = converted(SIGNATURE)[name]
    assert (tuple(value) if isinstance(default, tuple) else value) == default


@pytest.mark.parametrize("algorithm", STEPS)
def test_operators_take_the_options_of_their_algorithm(algorithm):
    taken = arguments(converted(SIGNATURE) | {"algorithm": algorithm})
    assert set(schema(STEPS[algorithm])) - OTHERS == set(taken)


def test_directions_take_the_options_of_a_step():
    assert set(schema("directions_")) - OTHERS == set(schema("step_")) - OTHERS


@pytest.mark.parametrize("algorithm", STEPS)
def test_param_groups_hold_the_options_of_their_algorithm(algorithm):
    (group,) = Tensorion([{"params": parameters()[:1], "algorithm": algorithm}]).param_groups
    own = {option.key for option in TABLE if algorithm in option.algorithms}
    assert set(group) - {"params", "algorithm"} == own


def test_docstring_describes_the_options():
    described = re.findall(r"^    (\w+) \(.+?\): ", inspect.getdoc(Tensorion).split("Args:\n")[1], re.MULTILINE)
    assert described == ["params", *NAMES, "process_group"]


def test_documentation_lists_the_options_and_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| .+ \|$", (ROOT / "docs/optimizer.md").read_text(), re.MULTILINE)
    assert {name: ast.literal_eval(default) for name, default in rows} == SIGNATURE
    assert [name for name, _ in rows] == NAMES
