import json
import subprocess
import sys
from pathlib import Path

import torch
from simulated_device import Device

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
import accelerator  # noqa: E402


def test_on_the_cpu(tmp_path):
    command = [sys.executable, BENCHMARKS / "accelerator.py", "--width", "8", "--rounds", "1", "--json", tmp_path / "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = json.loads((tmp_path / "x").read_text())
    assert results["device"] == "cpu"
    assert results["worst quality"] > 0.5
    assert all(row["milliseconds"] > 0 for row in results["steps"].values())
    assert all(label in done.stdout for label in results["steps"])


def test_on_the_simulated_device():
    with Device():
        found = accelerator.check(torch.device("simulated:0"))
    assert found["worst quality"] > 0.95
    assert found["difference to the CPU"] < 0.2
