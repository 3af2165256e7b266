"""The distributed examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import processes
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_data_parallel_example():
    outputs = processes.run_program(2, EXAMPLES / "ddp.py")
    assert outputs[1] == ""
    assert "own the 3 kernels; expected speedup 1." in outputs[0]
    assert "weights are the same on all ranks" in outputs[0]
    assert float(re.search(r"test accuracy ([\d.]+)", outputs[0])[1]) > 0.9


def state_of(checkpoint, file):
    dcp_to_torch_save(checkpoint, file)
    return torch.load(file, weights_only=False)


# Runs an example in which one rank is killed while it saves the third checkpoint.
KILLED = """
import os, runpy, signal, sys
import torch.distributed.checkpoint as dcp
save, calls = dcp.save, 0
def killed(*arguments, **options):
    global calls
    calls += 1
    if calls == 3 and os.environ["RANK"] == "1" and os.environ["LAUNCH"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return save(*arguments, **options)
dcp.save = killed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_torchrun_resumes_from_checkpoint_exactly(tmp_path):
    options = ["--steps", "16", "--save-every", "4"]
    output = processes.run_program(2, EXAMPLES / "fsdp2.py", "--checkpoints", tmp_path / "whole", *options)[0]
    assert float(re.search(r"test accuracy ([\d.]+)", output)[1]) > 0.9
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=0"]
    command += [tmp_path / "killed.py", EXAMPLES / "fsdp2.py", "--checkpoints", tmp_path / "parts", *options]
    outputs = []
    for launch in (0, 1):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LAUNCH": str(launch)}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as torchrun:
            try:
                outputs.append(torchrun.communicate(timeout=120))
            except subprocess.TimeoutExpired:
                torchrun.terminate()  # It also ends its workers.
                raise
        assert torchrun.returncode == 1 - launch, outputs[launch][1]
    assert "exitcode: -9" in outputs[0][1]
    assert "resuming from step 8" in outputs[1][0]
    expected = state_of(tmp_path / "whole" / "000016", tmp_path / "expected.pt")
    state = state_of(tmp_path / "parts" / "000016", tmp_path / "state.pt")
    assert state["model"].keys() == expected["model"].keys()
    for name, param in expected["model"].items():
        assert torch.equal(state["model"][name], param)
        for key, value in expected["optimizer"]["state"][name].items():
            assert torch.equal(state["optimizer"]["state"][name][key], value)
