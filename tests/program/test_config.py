"""--config reads options from a file, and --print-config prints them in the same format."""

import json
import re

import pytest
import tiny_training
from program import ROOT, read_json, run
from tiny_training import TINY_RUN, assert_same_results, metrics


@pytest.fixture
def common(cifar10):
    return tiny_training.flags(cifar10)


def config_file(folder, text, name="config.toml"):
    path = folder / name
    path.write_text(text)
    return path


def printed(*words):
    tomllib = pytest.importorskip("tomllib")  # since Python 3.11
    return tomllib.loads(run(*words, "--print-config").stdout)


RUNS = {
    "adamw": ["--optimizer", "adamw", "--betas", "0.8,0.9", "--schedule", "onecycle", "--no-cycle-momentum"],
    "tensorion": ["--unfolding", "0,2", "--polar", "newton_schulz", "--ns-coefficients", "3,-3,1;2,-1.5,0.5"],
    "sgd": ["--optimizer", "sgd", "--schedule", "multistep", "--milestones", "1", "--lr", "0.03", "--seed", "5"],
    "label": ["--label", "mine", "--nesterov", "true", "--no-channels-last", "--lr", "0.0123456789012345678"],
}


@pytest.mark.parametrize("name", RUNS)
def test_config_of_a_run_reproduces_it_exactly(name, common, tmp_path):
    first, second = tmp_path / "x", tmp_path / "y"
    run("train", *common, *RUNS[name], "--out", first)
    data = common[common.index("--data") + 1]
    run("train", "--config", first / "config.json", "--data", data, "--out", second)
    assert_same_results(second, first)
    assert read_json(second / "config.json") == read_json(first / "config.json")


def test_print_config_prints_the_options_of_the_run(common, tmp_path):
    flags = [*common, *RUNS["tensorion"], "--label-smoothing", "0.1"]
    text = run("train", *flags, "--print-config").stdout
    path = config_file(tmp_path, text)
    assert run("train", "--config", path, "--print-config").stdout == text
    run("train", *flags, "--out", tmp_path / "x")
    run("train", "--config", path, "--out", tmp_path / "y")
    assert_same_results(tmp_path / "y", tmp_path / "x")


def test_command_line_overrides_config_file(tmp_path):
    path = config_file(tmp_path, 'epochs = 7\nbatch-size = 5\nlabel_smoothing = 0.25 # a comment\nlabel = "a # b"\n')
    values = printed("train", "--config", path, "--epochs", "3")
    assert values["epochs"] == 3
    assert values["batch_size"] == 5
    assert values["label_smoothing"] == 0.25
    assert values["label"] == "a # b"
    assert values["optimizer"] == "tensorion"
    assert values["channels_last"] is True


def test_compare_accepts_values_per_method(tmp_path):
    path = config_file(
        tmp_path, 'optimizers = ["sgd", "fast=tensorion"]\nseeds = [4, 5]\nlr = {sgd = 0.5, fast = 0.25}\n'
    )
    values = printed("compare", "--config", path)
    assert values["lr"] == {"sgd": 0.5, "fast": 0.25}
    assert values["seeds"] == [4, 5]
    assert values["optimizers"] == ["sgd", "fast=tensorion"]
    assert values["momentum"] == {"sgd": 0.9, "fast": 0.95}
    again = config_file(tmp_path, run("compare", "--config", path, "--print-config").stdout, "again.toml")
    assert printed("compare", "--config", again) == values


def test_precedence_of_flags_config_file_and_preset(tmp_path):
    path = config_file(tmp_path, 'preset = "cifar10"\nepochs = 2\n')
    values = printed("compare", "--config", path, "--scale", "small", "--width", "0.5")
    assert values["epochs"] == 2  # The preset has 10.
    assert values["width"] == 0.5  # The preset has 0.25.
    assert values["limit_train"] == 10000
    assert set(values["lr"]) == {"sgd", "adamw", "tensorion-sgd", "tensorion-adamw"}


@pytest.mark.parametrize("command", ["ablation", "tightness"])
def test_other_commands_accept_config(command, tmp_path):
    path = config_file(tmp_path, "epochs = 3\n")
    assert printed(command, "--config", path, "--scale", "smoke")["epochs"] == 3


ERRORS = {
    "unknown": ("epoch = 3\n", "unknown option epoch; did you mean epochs?"),
    "far": ("temperature_of_the_room = 3\n", "unknown option temperature_of_the_room"),
    "itself": ('config = "x"\n', "unknown option config"),
    "range": ("epochs = 0\n", "--epochs"),
    "type": ('width = "wide"\n', "--width"),
    "syntax": ("epochs = 3\nwidth = = 2\n", "line 2 is not valid TOML"),
    "twice": ("epochs = 3\nepochs = 4\n", "line 2 is not valid TOML"),
    "date": ("epochs = 3\nwidth = 2024-01-01\n", "line 2: dates are not supported"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_file_and_write_nothing(name, tmp_path):
    text, message = ERRORS[name]
    path = config_file(tmp_path, text)
    result = run("train", "--config", path, "--out", tmp_path / "run", expect=1 if "line" in message else 2)
    assert str(path) in result.stderr
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


def test_json_must_be_an_object(tmp_path):
    path = config_file(tmp_path, json.dumps([1]), "config.json")
    assert "expected an object of options, got [1]" in run("train", "--config", path, expect=1).stderr


def test_compare_with_config_file(cifar10, tmp_path):
    lines = [
        f"{key[2:]} = {json.dumps(value.split(',') if ',' in value else value)}" for key, value in TINY_RUN.items()
    ]
    lines += [
        'dataset = "cifar10"',
        f'data = "{cifar10}"',
        'optimizers = ["sgd", "muon"]',
        f'out = "{tmp_path / "out"}"',
    ]
    run("compare", "--config", config_file(tmp_path, "\n".join(lines)))
    assert {row["optimizer"] for row in metrics(tmp_path / "out")} == {"sgd", "muon"}


def test_documented_config_file(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL)
    values = printed("compare", "--config", config_file(tmp_path, block))
    assert values["lr"] == {"sgd": 0.1, "muon": 0.005, "tensorion": 0.005}
    assert values["data"] == "data/cifar10"
