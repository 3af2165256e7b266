"""Run every command of the program once on small data, for builds with sanitizers.

python tests/smoke.py PROGRAM [THREADS]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "program"))
from tiny_training import write_cifar10, write_image_folder

PROGRAM = sys.argv[1]
THREADS = sys.argv[2] if len(sys.argv) > 2 else "1"
MODEL = ["--model", "resnet18", "--width", "0.125", "--depths", "1,1,1,1"]
TINY = f"--width 0.125 --depths 1,1,1,1 --limit-train 20 --limit-test 20 --epochs 1 --batch-size 10 --threads {THREADS}"
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # spinning threads slow down a busy machine


def command(text, *more):
    return [PROGRAM, *text.split(), *map(str, more)]


def run(text, *more):
    start = time.monotonic()
    result = subprocess.run(command(text, *more), capture_output=True, text=True, env=ENVIRONMENT)
    print(f"{time.monotonic() - start:6.1f} s  {text}", flush=True)
    if result.returncode != 0:
        sys.exit(f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}")


def interrupt(folder, text, *more):
    """Send SIGINT after the first checkpoint."""
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command(text, *more), **pipes, env=ENVIRONMENT) as process:
        while process.poll() is None and not (folder / "checkpoint.safetensors").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        message = process.communicate()[1].decode()
    if process.returncode not in (0, 128 + signal.SIGINT):  # 0: it finished before the signal
        sys.exit(f"exit status {process.returncode}\n{message}")


with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    (root / "cifar10").mkdir()
    write_cifar10(root / "cifar10")
    write_image_folder(root / "images")
    cifar = [*("--dataset", "cifar10", "--data", root / "cifar10"), *MODEL, "--batch-size", "20", "--threads", THREADS]

    run("inspect resnet18")
    interrupt(root / "train", "train --epochs 2 --workers 2 --checkpoint-every 0 --out", root / "train", *cifar)
    run("train --epochs 2 --workers 2 --checkpoint-every 0 --resume --out", root / "train", *cifar)
    run("inspect", root / "train" / "weights.safetensors")
    weights = ["--weights", root / "train" / "weights.safetensors"]
    run("compare --epochs 1 --optimizers sgd,adamw,muon,tensorion --out", root / "compare", *cifar, *weights)
    images = ["--data", root / "images"]
    run(f"train --dataset imagefolder --image-size 32 --model resnet18 {TINY} --out", root / "files", *images)
    run(f"ablation --scale smoke {TINY} --optimizers balanced,online,modes-0,sgd --out", root / "ablation", *images)
    run(f"tightness --scale smoke {TINY} --every 1 --certify 1000 --starts 2 --out", root / "tightness", *images)
    laplace = f"laplace --scale smoke --steps 20 --problems 3x6x2 --lrs 1e-2 --seeds 0 --threads {THREADS} --out"
    run(laplace, root / "laplace")
