"""Helpers for training runs that take one or two seconds: data, flags, and comparisons of results."""

import contextlib
import fcntl
import os
import subprocess
import time

import numpy as np
from program import PROGRAM, read_json_lines, read_safetensors

CLASSES = 10
TRAIN_SAMPLES = 5 * 24
TINY_MODEL = ["--model", "resnet18", "--width", "0.125", "--depths", "1,1,1,1"]
TIMES = {"seconds", "optimizer_seconds", "data_seconds"}


def write_cifar10(folder):
    """Write CIFAR-10 files. The position and color of a bright square determine the class."""
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


def write_image_folder(folder):
    """Write the same classes as JPEG files. The position and color of a bright square determine the class."""
    from PIL import Image

    numbers = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        for label in range(CLASSES):
            place = folder / split / f"class{label}"
            place.mkdir(parents=True)
            for i in range(count):
                pixels = numbers.integers(0, 80, (32, 32, 3))
                pixels[4 * (label // 3) : 4 * (label // 3) + 14, :, label % 3] += 120
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.jpg")


def flags(data, epochs=2):
    """Return flags for CIFAR-10 files in the folder `data`, with six steps per epoch."""
    return [
        *("--dataset", "cifar10", "--data", str(data), *TINY_MODEL),
        *("--batch-size", "20", "--epochs", str(epochs), "--threads", "1"),
    ]


# These flags override the scale of an experiment so that a run takes a second.
TINY_RUN = {"--width": "0.125", "--depths": "1,1,1,1", "--limit-train": "20", "--limit-test": "20"}
TINY_RUN |= {"--epochs": "1", "--batch-size": "10", "--threads": "1"}
TINY_TIGHTNESS = {**TINY_RUN, "--limit-train": "60", "--epochs": "2", "--every": "4"}
TINY_TIGHTNESS |= {"--certify": "1000", "--starts": "2"}


def metrics(folder):
    return read_json_lines(folder / "metrics.jsonl")


def without_times(rows):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def assert_same_results(folder, expected):
    """Check that results are bitwise equal, except for times and for the name of the run, which is its folder."""
    assert without_times(metrics(folder)) == [{**row, "run": folder.name} for row in without_times(metrics(expected))]
    weights = read_safetensors(folder / "weights.safetensors")
    assert weights == read_safetensors(expected / "weights.safetensors")


class StuckProgram:
    """Runs the program so that it blocks after its first epoch, because the pipe for its output is full.

    A test can then stop the program at a time that does not depend on the speed of the machine. The pipe holds one
    line. All lines of the plan are read except the last, which stays in the pipe.
    """

    def __init__(self, arguments):
        self._pipe, end = os.pipe2(os.O_DIRECT)  # Each line takes one slot of the pipe.
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)  # The pipe has one slot.
        self.process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=end)
        os.close(end)
        self._read = b""
        while b"training: " not in self._read:
            part = os.read(self._pipe, 4096)
            assert part, self._read.decode()
            self._read += part

    def wait_for_epoch(self, folder):
        """Wait until the first epoch of the run in the folder is over."""
        end = time.monotonic() + 120
        while not (folder / "metrics.jsonl").exists():
            assert self.process.poll() is None, self.finish()
            assert time.monotonic() < end, f"no epoch in {folder}"
            time.sleep(0.005)

    def finish(self):
        """Let the program continue to its end, and return what it wrote to stderr."""
        with os.fdopen(self._pipe, "rb", closefd=False) as pipe:
            message = (self._read + pipe.read()).decode()
        self.process.wait(timeout=300)
        return message

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._pipe)


@contextlib.contextmanager
def stuck_after_an_epoch(*arguments, folder):
    """Start a StuckProgram, wait for the first epoch of the run in the folder, and kill the program at the end."""
    with contextlib.closing(StuckProgram(arguments)) as program:
        program.wait_for_epoch(folder)
        yield program
