"""Bad input of the program: a table of command lines, exit statuses and parts of messages. No file may change.

Exit status 2 means a bad command line: an unknown option, or a bad value of an option. Exit status 1 means any other
error, such as bad files or data, or a run that diverged. More cases of `train` and `compare` are in test_train.py and
test_compare.py.
"""

import hashlib
import shutil
import signal
import struct
import subprocess

import numpy as np
import program
import pytest
import tiny_training
from program import PROGRAM, write_safetensors
from tiny_training import TINY_MODEL, write_cifar10


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with valid and invalid data, runs and files."""
    folder = tmp_path_factory.mktemp("place")
    write_cifar10(make(folder / "data"))
    flags = tiny_training.flags(folder / "data", epochs=1)
    program.run("train", *flags, "--optimizer", "sgd", "--lr", "0.1", "--out", folder / "run")
    program.run("laplace", *laplace(), "--out", folder / "laplace")
    shutil.rmtree(folder / "laplace" / "report", ignore_errors=True)

    # Invalid data.
    shutil.copytree(folder / "data", folder / "short")
    (folder / "short" / "data_batch_3.bin").write_bytes(b"\1" * 3072)
    shutil.copytree(folder / "data", folder / "no-test")
    (folder / "no-test" / "test_batch.bin").unlink()
    shutil.copytree(folder / "data", folder / "empty-batch")
    (folder / "empty-batch" / "data_batch_1.bin").write_bytes(b"")
    shutil.copytree(folder / "data", folder / "label")
    content = bytearray((folder / "label" / "data_batch_2.bin").read_bytes())
    content[3073] = 77
    (folder / "label" / "data_batch_2.bin").write_bytes(content)
    shutil.copytree(folder / "data", folder / "batch-is-a-folder")
    (folder / "batch-is-a-folder" / "test_batch.bin").unlink()
    (folder / "batch-is-a-folder" / "test_batch.bin").mkdir()
    (folder / "nothing").mkdir()
    (make(folder / "images" / "train" / "a") / "x.jpg").write_bytes(b"no image")
    (make(folder / "images" / "test" / "a") / "x.jpg").write_bytes(b"no image")

    # Invalid weights.
    good = (folder / "run" / "weights.safetensors").read_bytes()
    (folder / "truncated.safetensors").write_bytes(good[:-100])
    (folder / "flipped.safetensors").write_bytes(good[:-100] + bytes([good[-100] ^ 8]) + good[-99:])
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "text.safetensors").write_text("these are not weights, but a text of some length")
    (folder / "huge.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    write_safetensors(folder / "other.safetensors", {"head.weight": np.zeros((2, 3), np.float32)})
    write_safetensors(folder / "vectors.safetensors", {"bias": np.zeros(3, np.float32)})
    write_safetensors(folder / "integers.safetensors", {"a": np.zeros(2, np.int32)})

    # Invalid runs.
    for name in ("config", "no-config", "summary", "metrics", "fewer", "checkpoint"):
        shutil.copytree(folder / "run", folder / f"run-{name}")
    (folder / "run-config" / "config.json").write_text('{"dataset": ')
    (folder / "run-no-config" / "config.json").unlink()
    (folder / "run-summary" / "summary.json").write_text('{"run": 3}')
    (folder / "run-metrics" / "metrics.jsonl").write_text('{"epoch": 1}\n')
    (folder / "run-fewer" / "metrics.jsonl").write_text("")
    (folder / "run-checkpoint" / "summary.json").unlink()
    (folder / "run-checkpoint" / "checkpoint.safetensors").write_bytes(good)
    for name in ("config", "record", "line"):
        shutil.copytree(folder / "laplace", folder / f"laplace-{name}")
    (folder / "laplace-config" / "config.json").write_text("[]")
    (folder / "laplace-record" / "metrics.jsonl").write_text('{"problem": "3x4x2"}\n')
    (folder / "laplace-line" / "metrics.jsonl").write_text("this is no line\n")
    (folder / "file").write_text("a file")
    return folder


def make(folder):
    folder.mkdir(parents=True)
    return folder


def laplace():
    return ["--problems", "3x4x2", "--optimizers", "adam", "--lrs", "0.01", "--seeds", "0", "--steps", "3"]


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.is_dir() or hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
    }


def train(*flags):
    """Return a command that trains on the tiny data. The flags replace default flags of the same name."""
    given = dict(zip(flags[::2], flags[1::2], strict=False))
    common = {"--dataset": "cifar10", "--data": "{place}/data", "--epochs": "1", "--batch-size": "20"}
    common |= {"--threads": "1", "--out": "{place}/out", **dict(zip(TINY_MODEL[::2], TINY_MODEL[1::2], strict=True))}
    kept = [word for pair in common.items() if pair[0] not in given for word in pair]
    return ["train", *kept, *flags]


def resume(name, *flags):
    return train("--out", f"{{place}}/{name}", "--optimizer", "sgd", "--lr", "0.1", *flags, "--resume")


CASES = {
    # ---- The command line
    "no command": ([], 2, "train"),
    "unknown command": (["trian"], 2, "trian"),
    "unknown flag": (["train", "--learning-rate", "1"], 2, "--learning-rate"),
    "flag without a value": (["train", "--epochs"], 2, "--epochs"),
    "flag given twice": (["train", "--epochs", "1", "--epochs", "2"], 2, "--epochs"),
    "two commands": (["inspect", "3x4x5", "train"], 2, "train"),
    "epochs are a fraction": (["train", "--epochs", "1.5"], 2, "--epochs"),
    "epochs are negative": (["train", "--epochs", "-3"], 2, "--epochs"),
    "epochs have 30 digits": (["train", "--epochs", "9" * 30], 2, "--epochs"),
    "batch size is 0": (["train", "--batch-size", "0"], 2, "--batch-size"),
    "batch size is a word": (["train", "--batch-size", "all"], 2, "all"),
    "threads are 0": (["train", "--threads", "0"], 2, "--threads"),
    "workers are negative": (["train", "--workers", "-1"], 2, "--workers"),
    "seed is negative": (["train", "--seed", "-1"], 2, "--seed"),
    "seed is a word": (["train", "--seed", "x"], 2, "x"),
    "limit is 0": (["train", "--limit-train", "0"], 2, "--limit-train"),
    "stem is unknown": (["train", "--stem", "vgg"], 2, "got 'vgg'"),
    "nonfinite is unknown": (["train", "--nonfinite", "warn"], 2, "got 'warn'"),
    "checkpoints every -1 seconds": (["train", "--checkpoint-every", "-1"], 2, "--checkpoint-every"),
    "width is a word": (["train", "--width", "wide"], 2, "wide"),
    "depths are words": (["train", "--depths", "a,b"], 2, "--depths"),
    "milestones are words": (["train", "--milestones", "x"], 2, "--milestones"),
    "scale without a preset": (["compare", "--scale", "smoke"], 2, "--preset"),
    "unknown preset": (["compare", "--preset", "mnist"], 2, "got 'mnist'"),
    "unknown scale": (["laplace", "--scale", "huge"], 2, "got 'huge'"),
    "unknown optimizer of laplace": (["laplace", "--optimizers", "lion"], 2, "got 'lion'"),
    "learning rate of laplace is 0": (["laplace", "--lrs", "0"], 2, "--lrs"),
    "dtype of laplace": (["laplace", "--dtype", "float16"], 2, "got 'float16'"),
    "steps of laplace": (["laplace", "--steps", "0"], 2, "--steps"),
    "inspect nothing": (["inspect"], 2, "shapes is required"),
    "grid of no rate": (["compare", "--grid-lrs", "-1"], 2, "--grid-lrs"),
    "every 0 steps": (["tightness", "--every", "0"], 2, "--every"),
    # ---- Values
    "lr is NaN": (train("--lr", "nan"), 2, "--lr must be finite and not negative, got nan"),
    "lr is infinite": (train("--lr", "inf"), 2, "--lr must be finite and not negative, got inf"),
    "lr is empty": (train("--lr", ""), 2, "--lr"),
    "momentum is 1": (train("--momentum", "1"), 2, "--momentum must be in [0, 1), got 1"),
    "weight decay is negative": (
        train("--weight-decay", "-0.1"),
        2,
        "--weight-decay must be finite and not negative, got -0.1",
    ),
    "eps is a word": (train("--eps", "tiny"), 2, "--eps must be a number, got 'tiny'"),
    "betas are three": (
        train("--betas", "0.9,0.99,0.999"),
        2,
        "--betas must be two numbers such as 0.9,0.999, got '0.9,0.99,0.999'",
    ),
    "unfolding is negative": (train("--unfolding", "-1"), 2, "mode must be in [0, 4), got -1"),
    "unfolding is all modes": (train("--unfolding", "0,1,2,3"), 2, "unfolding (0, 1, 2, 3) does not fit parameter"),
    "unfolding names a mode twice": (train("--unfolding", "1,1"), 2, "modes must be distinct, got [1, 1]"),
    "ns-steps is 0": (train("--ns-steps", "0"), 2, "--ns-steps must be at least 1, got 0"),
    "ns-steps is a billion": (train("--ns-steps", "1000000000"), 2, "--ns-steps must be at most 1000, got 1000000000"),
    "ns-coefficients are unknown": (train("--ns-coefficients", "moun"), 2, "got 'moun'"),
    "min-order is 0": (train("--min-order", "0"), 2, "--min-order must be at least 1, got 0"),
    "adjust-lr is unknown": (train("--adjust-lr", "rms"), 2, "got 'rms'"),
    "width is 0": (train("--width", "0"), 2, "got 0"),
    "width is negative": (train("--width", "-1"), 2, "got -1"),
    "width is NaN": (train("--width", "nan"), 2, "got nan"),
    "width is 10^9": (train("--width", "1e9"), 2, "1e+09"),
    "image size is 0": (train("--image-size", "0"), 2, "got '0'"),
    "image size is negative": (train("--image-size", "-32"), 2, "got '-32'"),
    "image size is 10^9": (
        train("--image-size", "1000000000"),
        2,
        "--image-size must be an integer from 1 to 16384, got '1000000000'",
    ),
    "depths are negative": (train("--depths", "1,1,-1,1"), 2, "[1, 1, -1, 1]"),
    "label smoothing is negative": (
        train("--label-smoothing", "-0.5"),
        2,
        "--label-smoothing must be a number in [0, 1), got '-0.5'",
    ),
    "gamma is NaN": (train("--gamma", "nan", "--schedule", "multistep", "--milestones", "1"), 2, "got nan"),
    "an option of two optimizers": (
        train("--lr", "tensorion=1,sgd=2"),
        2,
        "--lr must be a value or a list of OPTIMIZER=VALUE with optimizers from tensorion, got",
    ),
    "inspect a word": (["inspect", "kernel"], 2, "got 'kernel'"),
    "inspect a size of 0": (["inspect", "3x0x5"], 2, "got '3x0x5'"),
    "inspect a negative size": (["inspect", "--", "3x-4x5"], 2, "got '3x-4x5'"),
    "inspect 2^80 elements": (
        ["inspect", "1099511627776x1099511627776"],
        2,
        "fewer than 2^63 elements, got '1099511627776x",
    ),
    "inspect 25 modes": (
        ["inspect", "x".join(["2"] * 25)],
        2,
        "at most 24 modes of size other than 1 are supported, got 25",
    ),
    "inspect kernels of a shape": (
        ["inspect", "3x4x5", "--convolution", "8"],
        2,
        "--convolution requires a safetensors file, got '3x4x5'",
    ),
    "laplace without points": (["laplace", "--problems", "3x0x2", "--out", "{place}/out"], 2, "3x0x2"),
    "laplace in one number": (["laplace", "--problems", "10", "--out", "{place}/out"], 2, "such as 10x32x8, got '10'"),
    "laplace polar": (["laplace", *laplace()[:2], "--polar", "qr", "--out", "{place}/out"], 2, "got 'qr'"),
    "laplace momentum": (["laplace", *laplace()[:2], "--momentum", "2", "--out", "{place}/out"], 2, "got 2"),
    "compare an unknown optimizer": (["compare", "--optimizers", "sgd,lion"], 2, "NAME=OPTIMIZER, got 'lion'"),
    "compare a name with a slash": (["compare", "--optimizers", "a/b=sgd"], 2, "got 'a/b=sgd'"),
    "report at 5 dots": (["report", "{place}/run", "--dpi", "5"], 2, "expected an integer in [20, 1200], got '5'"),
    "report without a folder": (["report"], 2, "DIR"),
    "width is clamped": (
        train("--width", "0.1"),
        2,
        "width must be in [0.125, 64] (0.125 means 8 channels), got 0.1",
    ),
    "betas are beyond 1": (train("--betas", "0.9,2"), 2, "--betas must"),
    # ---- Data
    "data is not there": (train("--data", "{place}/nowhere"), 1, "{place}/nowhere (--data), which does not exist"),
    "data is a file": (train("--data", "{place}/file"), 1, "{place}/file"),
    "data is an empty folder": (train("--data", "{place}/nothing"), 1, "{place}/nothing"),
    "data is of another set": (train("--dataset", "fashion-mnist"), 1, "{place}/data"),
    "data is cut short": (train("--data", "{place}/short"), 1, "{place}/short/data_batch_3.bin"),
    "data is empty": (train("--data", "{place}/empty-batch"), 1, "{place}/empty-batch/data_batch_1.bin"),
    "data has an unknown class": (train("--data", "{place}/label"), 1, "{place}/label/data_batch_2.bin"),
    "test data is missing": (train("--data", "{place}/no-test"), 1, "{place}/no-test/test_batch.bin"),
    "test data is a folder": (
        train("--data", "{place}/batch-is-a-folder"),
        1,
        "{place}/batch-is-a-folder/test_batch.bin",
    ),
    "an image file is not an image": (
        train("--dataset", "imagefolder", "--data", "{place}/images", "--image-size", "32"),
        1,
        "/a/x.jpg",
    ),
    # ---- Weights
    "weights are not there": (train("--weights", "{place}/none.safetensors"), 1, "{place}/none.safetensors"),
    "weights are a folder": (train("--weights", "{place}/nothing"), 1, "{place}/nothing"),
    "weights are empty": (
        train("--weights", "{place}/empty.safetensors"),
        1,
        "{place}/empty.safetensors: expected at least 8 bytes, got 0",
    ),
    "weights are a text": (
        train("--weights", "{place}/text.safetensors"),
        1,
        "{place}/text.safetensors: the header may have at most",
    ),
    "weights are cut short": (
        train("--weights", "{place}/truncated.safetensors"),
        1,
        "{place}/truncated.safetensors: ",
    ),
    "weights have a flipped bit": (
        train("--weights", "{place}/flipped.safetensors"),
        1,
        "{place}/flipped.safetensors: the file is damaged: its checksum is",
    ),
    "weights claim an exabyte": (
        train("--weights", "{place}/huge.safetensors"),
        1,
        "got a length of 1152921504606846976",
    ),
    "weights are another model's": (
        train("--weights", "{place}/other.safetensors"),
        1,
        "{place}/other.safetensors does not match the model; ",
    ),
    "inspect weights that are not there": (
        ["inspect", "{place}/none.safetensors"],
        1,
        "cannot open {place}/none.safetensors: No such file",
    ),
    "inspect integers": (
        ["inspect", "{place}/integers.safetensors"],
        1,
        "expected floating-point tensors, got none in '{place}/integers.safetensors'",
    ),
    "inspect vectors as kernels": (
        ["inspect", "{place}/vectors.safetensors", "--convolution", "8"],
        1,
        "got none in '{place}/vectors.safetensors'",
    ),
    # ---- Folders of results
    "out is a file": (train("--out", "{place}/file"), 1, "{place}/file"),
    "out is in a file": (train("--out", "{place}/file/run"), 1, "{place}/file/run"),
    "out cannot be written": (train("--out", "/proc/tensorion"), 1, "/proc/tensorion"),
    "out has a run": (train("--out", "{place}/run"), 1, "{place}/run already contains a run; continue with --resume"),
    "resumed with another rate": (
        resume("run", "--weight-decay", "0.5"),
        1,
        "{place}/run was started with --weight-decay",
    ),
    "resumed with another seed": (resume("run", "--seed", "3"), 1, "was started with --seed 0, got 3"),
    "resumed with other threads": (resume("run", "--threads", "2"), 1, "was started with --threads 1, got 2"),
    "resumed with another model": (resume("run", "--width", "0.25"), 1, "was started with --width 0.125, got 0.25"),
    "resumed with less data": (resume("run", "--limit-test", "20"), 1, "was started with --limit-test null, got 20"),
    "config is half written": (resume("run-config"), 1, "{place}/run-config/config.json: not valid: "),
    "summary lacks what it should have": (resume("run-summary"), 1, "{place}/run-summary/summary.json: not valid: "),
    "metrics lack what they should have": (
        resume("run-metrics"),
        1,
        "{place}/run-metrics/metrics.jsonl: line 1 is not valid: ",
    ),
    "metrics lack an epoch": (
        resume("run-fewer"),
        1,
        "{place}/run-fewer/metrics.jsonl: expected 1 epochs, as in summary.json, got 0",
    ),
    "checkpoint is a file of weights": (
        resume("run-checkpoint"),
        1,
        "{place}/run-checkpoint/checkpoint.safetensors: expected the format tensorion-checkpoint-2, got 'pt'",
    ),
    "laplace in a file": (["laplace", *laplace(), "--out", "{place}/file"], 1, "{place}/file"),
    "laplace once more": (
        ["laplace", *laplace(), "--out", "{place}/laplace"],
        1,
        "{place}/laplace already contains results; continue with --resume",
    ),
    "laplace resumed otherwise": (
        ["laplace", *laplace(), "--schedule", "constant", "--momentum", "0.5", "--out", "{place}/laplace", "--resume"],
        1,
        "{place}/laplace was started with other options: ",
    ),
    "laplace config is a list": (
        ["laplace", *laplace(), "--out", "{place}/laplace-config", "--resume"],
        1,
        "{place}/laplace-config/config.json: not valid: ",
    ),
    "laplace record lacks a key": (
        ["laplace", *laplace(), "--out", "{place}/laplace-record", "--resume"],
        1,
        "{place}/laplace-record/metrics.jsonl: line 1 is not valid: ",
    ),
    "laplace record is a text": (
        ["laplace", *laplace(), "--out", "{place}/laplace-line", "--resume"],
        1,
        "{place}/laplace-line/metrics.jsonl: line 1 is not valid: ",
    ),
    "report of nothing": (["report", "{place}/nowhere"], 1, "{place}/nowhere: no such directory"),
    "report of a file": (["report", "{place}/file"], 1, "{place}/file: expected a directory, got a file"),
    "report of an empty folder": (["report", "{place}/nothing"], 1, "{place}/nothing: the directory is empty"),
    "report of a broken config": (
        ["report", "{place}/run-config"],
        1,
        "{place}/run-config/config.json, line 1: not valid JSON",
    ),
    "report of metrics without keys": (
        ["report", "{place}/run-metrics"],
        1,
        "{place}/run-metrics/metrics.jsonl, line 1: expected the key",
    ),
    "report of a run without a config": (
        ["report", "{place}/run-no-config"],
        1,
        "{place}/run-no-config/config.json: No such file",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_an_error_and_changes_nothing(case, place):
    arguments, status, words = CASES[case]
    shutil.rmtree(place / "out", ignore_errors=True)  # A failed case may have left it.
    before = snapshot(place)
    command = [PROGRAM, *(word.replace("{place}", str(place)) for word in arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=place)
    assert result.returncode == status, result.stderr
    assert words.replace("{place}", str(place)) in result.stderr
    for trace in ("Traceback", "terminate called", "Exception raised from", "frame #", "what():"):
        assert trace not in result.stderr
    assert snapshot(place) == before


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, "inspect", "3x4x5"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "cannot write to standard output: No space left on device" in result.stderr


def test_program_ends_if_its_reader_ends():
    with subprocess.Popen([PROGRAM, "inspect", "resnet18"], stdout=subprocess.PIPE) as process:
        process.stdout.close()
    assert process.returncode in (0, -signal.SIGPIPE)
