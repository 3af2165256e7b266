#!/usr/bin/env python3
"""Kills a training run repeatedly at random moments, and compares its results with an undisturbed run.

    .venv/bin/python scripts/kill_test.py --kills 50

Every kill is a SIGKILL, which the program cannot handle. A third of the kills wait for a file that is being written.
The others come at any time, also during startup. After each kill, the same command resumes the run with --resume. In
the end, weights and metrics (except times) must be bitwise equal, and no temporary file may be left.
"""

import argparse
import collections
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "program"))

from program import PROGRAM, files, run
from tiny_training import assert_same_results, flags, write_cifar10

RESULTS = {"config.json", "metrics.jsonl", "summary.json", "weights.safetensors"}
CHECKPOINTS = {f"checkpoint{kind}.safetensors" for kind in ("", ".previous", ".new")}


def unfinished(folder):
    """Return the temporary files of a killed writer."""
    return {path.name for path in folder.glob("*.tmp")} if folder.exists() else set()


def written_at(path):
    """Return the modification time in nanoseconds, or 0 if the file does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_until(process, condition, seconds):
    """Wait for the condition, and return whether it became true while the process ran."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.0005)
    return False


def kill(process, folder, moments):
    """Kill the process at a random moment, and return whether it was still running."""
    checkpoint = folder / "checkpoint.safetensors"
    before = written_at(checkpoint)
    kind = moments.random()
    if kind < 1 / 6:  # during startup
        wait_until(process, lambda: False, moments.uniform(0, 0.5))
    else:
        wait_until(process, lambda: written_at(checkpoint) not in (0, before), 120)
        if kind < 1 / 2:
            wait_until(process, lambda: unfinished(folder), 1)
        else:
            wait_until(process, lambda: False, moments.uniform(0, 0.2))
    process.kill()
    return process.wait() == -9


def kill_test(folder, kills, *, optimizer="tensorion", epochs=6, seed=0):
    """Run the test, and return counts of the moments of the kills. Raise if the results differ."""
    data = folder / "data"
    data.mkdir()
    write_cifar10(data)
    options = [*flags(data, epochs), "--optimizer", optimizer, "--schedule", "onecycle"]
    command = ["train", *options, "--checkpoint-every", "0", "--resume"]
    run(*command, "--out", folder / "whole")
    moments = random.Random(seed)
    counts = collections.Counter()
    while counts["kills"] < kills:
        counts["runs"] += 1
        out = folder / f"run-{counts['runs']}"
        while not (out / "summary.json").exists():
            counts["starts"] += 1
            with subprocess.Popen(
                [PROGRAM, *command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as process:
                killed = counts["kills"] < kills and kill(process, out, moments)
                message = process.stderr.read()
            counts["kills"] += killed
            if not killed and process.returncode != 0:
                raise AssertionError(f"start {counts['starts']} failed with {process.returncode}: {message}")
            if "Warning" in message:
                raise AssertionError(f"start {counts['starts']} found a damaged checkpoint: {message}")
            left = unfinished(out)
            counts["while a file was written"] += killed and bool(left)
            counts["while a checkpoint was written"] += killed and "checkpoint.new.safetensors.tmp" in left
            counts["between its renames"] += killed and "checkpoint.new.safetensors" in files_of(out)
            unknown = files_of(out) - RESULTS - CHECKPOINTS - {f"{name}.tmp" for name in RESULTS | CHECKPOINTS}
            if unknown:
                raise AssertionError(f"unknown files: {unknown}")
        # The run may have been killed after it wrote its summary. Run the command again, which removes checkpoints.
        run(*command, "--out", out)
        assert_same_results(out, folder / "whole")
        assert files(out) == files(folder / "whole") == RESULTS, files(out)
    return counts


def files_of(folder):
    return files(folder) if folder.exists() else set()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", default="tensorion")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts = kill_test(Path(folder), options.kills, optimizer=options.optimizer, seed=options.seed)
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    print(f"all runs have the weights and metrics of the undisturbed run; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
