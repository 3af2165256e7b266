"""`tensorion train` has a flag for each option of the optimizer, and config.json records them."""

import inspect
import re

import tiny_training
from program import read_json, run

import tensorion

#: Options whose flag has another name.
NAMES = {"fallback_betas": "betas", "fallback_eps": "eps", "adjust_lr_fn": "adjust_lr"}
#: Options without a flag. The trainer checks gradients with its own --nonfinite, minimizes, and uses one process.
NOT_FLAGS = {"params", "nonfinite", "maximize", "process_group"}
OPTIONS = {NAMES.get(name, name) for name in inspect.signature(tensorion.Tensorion).parameters if name not in NOT_FLAGS}


def test_help_lists_the_options():
    section = run("train", "--help").stdout.split("Optimizer:\n")[1].split("\n\n")[0]
    flags = {flag.replace("-", "_") for flag in re.findall(r"^  --([\w-]+)", section, re.MULTILINE)}
    assert flags - {"label", "optimizer", "schedule"} == OPTIONS


def test_config_records_the_options(cifar10, tmp_path):
    run("train", *tiny_training.flags(cifar10, epochs=1), "--out", tmp_path / "run")
    assert set(read_json(tmp_path / "run" / "config.json")) >= OPTIONS
