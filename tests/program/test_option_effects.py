"""Options without effect are errors, misspelled names get a suggestion, and `--help` shows the actual defaults."""

import re

import pytest
import tiny_training
from program import run

TRAIN = ["train", "--out", "out"]

REFUSED = {
    "milestones of cosine": (
        [*TRAIN, "--milestones", "1"],
        "--milestones has no effect without --schedule multistep",
    ),
    "gamma of cosine": ([*TRAIN, "--gamma", "0.5"], "--gamma has no effect without --schedule multistep"),
    "cycled momentum of cosine": (
        [*TRAIN, "--cycle-momentum"],
        "--cycle-momentum has no effect without --schedule onecycle",
    ),
    "milestones after the end": (
        [*TRAIN, "--schedule", "multistep", "--milestones", "50,75", "--epochs", "20"],
        "--schedule multistep has no effect: expected a milestone before epoch 20, the last one, got 50, 75",
    ),
    "no milestone in one epoch": (
        [*TRAIN, "--schedule", "multistep", "--epochs", "1"],
        "--schedule multistep has no effect: expected a milestone before epoch 1, the last one, got 1, 1",
    ),
    "Newton-Schulz steps of an SVD": (
        [*TRAIN, "--ns-steps", "3", "--polar", "svd"],
        "--ns-steps has no effect with --polar svd",
    ),
    "Newton-Schulz steps on the CPU": (
        [*TRAIN, "--ns-steps", "3", "--device", "cpu"],
        "--ns-steps has no effect with --polar auto on the CPU, which means halley; use --polar newton_schulz",
    ),
    "Newton-Schulz coefficients on the CPU": (
        [*TRAIN, "--ns-coefficients", "muon", "--device", "cpu"],
        "--ns-coefficients has no effect with --polar auto on the CPU",
    ),
    "interval of a fixed choice": (
        [*TRAIN, "--online-interval", "5"],
        "--online-interval has no effect without --unfolding online",
    ),
    "betas of sgd": (
        [*TRAIN, "--betas", "0.9,0.99", "--fallback", "sgd"],
        "--betas has no effect with --fallback sgd",
    ),
    "momentum of adamw": (
        [*TRAIN, "--fallback-momentum", "0.9"],
        "--fallback-momentum has no effect with --fallback adamw",
    ),
    "stem of a ViT": (
        [*TRAIN, "--model", "vit_small_patch16_224", "--stem", "cifar"],
        "--stem has no effect on vit_small_patch16_224",
    ),
    "grid without a grid": (["compare", "--grid-lrs", "0.1"], "--grid-lrs requires --grid"),
    "a rate beside a grid": (["compare", "--grid", "--lr", "0.1"], "--grid excludes --lr"),
    "an optimizer's option in eval": (
        ["eval", "--weights", "w.safetensors", "--lr", "0.1"],
        "--lr is an option of training and cannot be used with eval",
    ),
    "a dry run of eval": (
        ["eval", "--weights", "w.safetensors", "--dry-run"],
        "--dry-run is an option of training and cannot be used with eval",
    ),
    "resume nothing": (
        ["train", "--resume", "nowhere"],
        "--resume nowhere: expected a folder with config.json or config.toml, found neither",
    ),
    "a misspelled command": (["trian"], "unknown command trian; did you mean train?"),
    "a misspelled option": (
        ["train", "--optimiser", "sgd"],
        "unknown option --optimiser; did you mean --optimizer?",
    ),
    "a misspelled value": (["train", "--model", "resnet19"], "got 'resnet19'; did you mean resnet18?"),
    "a misspelled model to inspect": (["inspect", "resnet19"], "; did you mean resnet18?"),
    "thousands of threads": (["train", "--threads", "4096"], "--threads must be an integer from 1 to "),
    "thousands of workers": (["train", "--workers", "4096"], "--workers must be an integer from 1 to "),
    "a limit that can be read": (
        ["train", "--checkpoint-every", "-1"],
        "--checkpoint-every must be a non-negative number, got '-1'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_useless_or_unknown_options_are_errors(case, tmp_path):
    arguments, message = REFUSED[case]
    result = run(*arguments, expect=2, cwd=tmp_path)
    assert message in result.stderr
    assert len(result.stderr) < 600
    assert list(tmp_path.iterdir()) == []


PRESETS = [["compare", "--preset", name] for name in ("cifar10", "tiny-imagenet", "imagenette-vit")]


@pytest.mark.parametrize("scale", ["paper", "small", "smoke"])
@pytest.mark.parametrize("command", [["ablation"], ["tightness"], ["laplace"], *PRESETS], ids=" ".join)
def test_help_shows_defaults(command, scale):
    tomllib = pytest.importorskip("tomllib")  # since Python 3.11
    flags = [*command, "--scale", scale]
    config = tomllib.loads(run(*flags, "--print-config").stdout)
    text = run(*flags, "--help").stdout
    shown = dict(re.findall(r"^  --([\w-]+) [A-Z]+(?::.*?)?=(\S+)", text, re.MULTILINE))
    checked = 0
    for name, default in shown.items():
        value = config.get(name.replace("-", "_"))
        if value is None or name in ("scale", "device", "optimizers"):
            continue
        values = value if isinstance(value, list) else [value]
        assert [same(part) for part in default.split(",")] == [same(part) for part in values], name
        checked += 1
    assert checked >= 5
    for name in ("lr", "weight_decay", "momentum", "schedule", "fallback", "polar"):
        given = config.get(name)
        if given is None or command == ["laplace"]:
            continue
        (line,) = re.findall(rf"^  --{name.replace('_', '-')} .*\(default: (.*)\)$", text, re.MULTILINE)
        by_name = given if isinstance(given, dict) else {"all": given}
        if " for " not in line:
            assert {same(value) for value in by_name.values()} == {same(line)}, name
            continue
        parts = dict(part.split(" for ") for part in line.split("; "))
        by_method = {method: value for value, methods in parts.items() for method in re.split(", | and ", methods)}
        assert {key: same(value) for key, value in by_method.items()} == {k: same(v) for k, v in given.items()}


def same(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def test_plan_is_printed_first(cifar10, tmp_path):
    flags = [*tiny_training.flags(cifar10), "--seeds", "0,1", "--optimizers", "sgd,muon", "--schedule", "multistep"]
    lines = run("compare", *flags, "--out", tmp_path / "out").stderr.splitlines()
    assert lines[0].startswith("data: cifar10 from ")
    assert lines[0].endswith("120 training samples, 50 test samples, 10 classes, 32 x 32")
    assert lines[1].startswith("model: resnet18, width 0.125, on ")
    assert lines[2] == "optimizer: sgd, lr 0.1, weight decay 0.0005, schedule multistep (times 0.1 after epochs 1, 2)"
    assert lines[3].startswith("optimizer: muon, lr 0.005, ")
    assert lines[4] == "training: 4 runs of 2 epochs, 6 batches of 20 each"
    assert re.fullmatch(r"estimated time: \d+:\d\d \(measured on a step of each method\)", lines[5])
