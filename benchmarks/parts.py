#!/usr/bin/env python3
"""Times a step without one of its parts at a time: what does each of them buy?

    python benchmarks/parts.py [--json FILE] [--threads 1 2] [--rounds 5] [--only NAME...]

Every file `parts/NAME.patch` removes one part from the source of the library. Each changed library is built in
`build-parts` and loaded by a process of its own. The processes take turns, so that a slow moment of the machine affects
all of them. A ratio of 1.10 means that the step takes 10 % longer without the part.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import torch
from measure import paired_ratio
from workloads import trained_momenta

import tensorion

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "benchmarks" / "parts"
BUILD = ROOT / "build-parts"
#: The name of the unchanged library.
WHOLE = "whole"
UNFOLDINGS = ("balanced", "flattened", "online")


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> None:
    """Run a command with more environment variables, and show its output only if it fails."""
    output = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=cwd, env=os.environ | variables, check=False, **output)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


def apply(patch: Path, folder: Path) -> None:
    """Apply a patch to a copy of the source, even if the copy is inside a repository."""
    run("git", "apply", patch, cwd=folder, GIT_CEILING_DIRECTORIES=str(folder.parent))


def sources() -> Path:
    """Copy the source of the library to the build folder. Unchanged files keep their times, so they are not rebuilt."""
    copy = BUILD / "source"
    for folder in ("cmake", "lab", "python", "tensorion"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and file.suffix in {".cpp", ".h", ".txt", ".cmake", ".in"}:
                restore(file, copy / file.relative_to(ROOT))
    restore(ROOT / "CMakeLists.txt", copy / "CMakeLists.txt")
    return copy


def restore(file: Path, to: Path) -> None:
    if not to.exists() or to.read_bytes() != file.read_bytes():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)


def build(name: str) -> Path:
    """Build the library without a part, and return a folder with a package that loads it."""
    copy = sources()
    if name != WHOLE:
        apply(PATCHES / f"{name}.patch", copy)
    # With the RPATH of the installed library, the operators load the library next to them.
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"]
    options.append(f"-DPython3_EXECUTABLE={sys.executable}")
    run("cmake", "-G", "Ninja", "-S", copy, "-B", BUILD / "cmake", *options)
    run("cmake", "--build", BUILD / "cmake", "--target", "tensorion_ops")
    installed = Path(tensorion.__file__).parent
    package = BUILD / name / "tensorion"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(installed, package, ignore=shutil.ignore_patterns("bin", "__pycache__"))
    lib = next(package.glob("torch-*")) / "lib"
    for library in ("tensorion/libtensorion.so", "python/libtensorion_ops.so"):
        shutil.copyfile(BUILD / "cmake" / library, lib / Path(library).name)
    return package.parent


class Worker:
    """A process that loads one of the libraries and takes steps on request."""

    def __init__(self, package: Path, momenta: Path) -> None:
        path = os.pathsep.join([str(package), str(PATCHES.parent)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", momenta],
            env=os.environ | {"PYTHONPATH": path, "OMP_WAIT_POLICY": "passive"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, unfolding: str, threads: int) -> float:
        """Take a step and return its time."""
        self.process.stdin.write(f"{unfolding} {threads}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def work(momenta: Path) -> None:
    """Run a worker: for each line of input, take a step."""
    grads = torch.load(momenta, weights_only=True)
    steps = {}
    for unfolding in UNFOLDINGS:
        params = [torch.nn.Parameter(torch.zeros_like(grad)) for grad in grads]
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        choice = (0,) if unfolding == "flattened" else unfolding
        steps[unfolding] = tensorion.Tensorion(params, lr=1e-3, weight_decay=0.0, unfolding=choice).step
    for line in sys.stdin:
        unfolding, threads = line.split()
        torch.set_num_threads(int(threads))
        start = time.perf_counter()
        steps[unfolding]()
        print(time.perf_counter() - start, flush=True)


def measure(names: list[str], threads: list[int], rounds: int) -> list[dict]:
    packages = {name: build(name) for name in [WHOLE, *names]}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        momenta = Path(folder) / "momenta.pt"
        torch.save([momentum.detach() for momentum in trained_momenta()], momenta)
        workers = {name: Worker(package, momenta) for name, package in packages.items()}
        for count in threads:
            for unfolding in UNFOLDINGS:
                times: dict[str, list[float]] = {name: [] for name in workers}
                for number in range(rounds + 2):  # the first two rounds warm up
                    for name, worker in workers.items():
                        seconds = worker.seconds(unfolding, count)
                        if number > 1:
                            times[name].append(seconds)
                for name in names:
                    ratio = paired_ratio(times[name], times[WHOLE])
                    rows.append(
                        {"part": name, "unfolding": unfolding, "threads": count, "without": ratio.median}
                        | {"low": ratio.low, "high": ratio.high}
                    )
        for worker in workers.values():
            worker.stop()
    return rows


def print_rows(rows: list[dict]) -> None:
    columns = sorted({(row["threads"], UNFOLDINGS.index(row["unfolding"])) for row in rows})
    print(f"{'without':<24}" + "".join(f"{UNFOLDINGS[u]}, {t} thr.".rjust(20) for t, u in columns))
    for part in dict.fromkeys(row["part"] for row in rows):
        cells = {(row["threads"], UNFOLDINGS.index(row["unfolding"])): row for row in rows if row["part"] == part}
        print(f"{part:<24}" + "".join(f"{cells[column]['without']:.2f}".rjust(20) for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the ratios to this file")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, torch.get_num_threads()}))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="only these parts")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker)
        return
    found = machine.describe()
    print(machine.headline(found), flush=True)
    names = arguments.only or sorted(patch.stem for patch in PATCHES.glob("*.patch"))
    rows = measure(names, arguments.threads, arguments.rounds)
    print_rows(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": found, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
