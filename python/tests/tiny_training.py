"""Runs of the program on tiny data: what several tests of it need."""

import json
import struct
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np

PROGRAM = Path(sysconfig.get_path("scripts")) / "tensorion"
CLASSES = 10
TRAIN_SAMPLES = 5 * 24
TINY_MODEL = ["--model", "resnet18", "--width", "0.125", "--depths", "1,1,1,1"]
TIMES = {"seconds", "optimizer_seconds", "data_seconds"}


def write_cifar10(folder):
    """CIFAR-10's files: a bright square whose place and colour tell the class."""
    numbers = np.random.default_rng(0)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for count, name in zip([24] * 5 + [50], names, strict=True):
        labels = np.arange(count) % CLASSES
        pixels = numbers.integers(0, 90, (count, 3, 32, 32))
        for image, label in zip(pixels, labels, strict=True):
            row = 6 + 12 * (label // 5)
            image[label % 3, row : row + 8, 10:22] += 40 * (1 + label % 5 // 2)
            image[(label + label // 5) % 3, 14:18] += 60
        records = np.concatenate([labels[:, None], pixels.reshape(count, -1)], axis=1)
        (folder / name).write_bytes(records.astype(np.uint8).tobytes())


def flags(data, epochs=2):
    """Of a run that takes a second or two."""
    return [
        *("--dataset", "cifar10", "--data", str(data), *TINY_MODEL),
        *("--batch-size", "20", "--epochs", str(epochs), "--threads", "1"),
    ]


def run(*arguments, expect=0, **options):
    command = [PROGRAM, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == expect, result.stderr
    return result


def read_json(path):
    return json.loads(path.read_text())


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_times(rows):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def read_weights(path):
    """A safetensors file's tensors as bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    header.pop("__metadata__", None)
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def assert_same_results(folder, expected):
    """Bitwise, but for the times and the name of the run, which is its folder's."""
    assert without_times(metrics(folder)) == [{**row, "run": folder.name} for row in without_times(metrics(expected))]
    assert read_weights(folder / "weights.safetensors") == read_weights(expected / "weights.safetensors")


def files(folder):
    return {path.name for path in folder.iterdir()}


def wait_for_new_checkpoint(process, out, before):
    path = out / "checkpoint.safetensors"
    while process.poll() is None:
        if path.exists() and path.stat().st_mtime_ns != before:
            return
        time.sleep(0.005)
