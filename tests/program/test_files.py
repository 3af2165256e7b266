"""Malicious files: no code in them is run, and sizes in their headers allocate no memory."""

import os
import pickle
import re
import subprocess
from pathlib import Path

import pytest
import torch
from program import PROGRAM, ROOT, run
from tiny_training import TINY_MODEL

HOSTILE = ROOT / "tests" / "fuzz" / "corpus" / "safetensors"


def inspect(path):
    """Return the exit status, the errors, and the peak memory in MB."""
    command = [PROGRAM, "inspect", path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        errors = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, errors, usage.ru_maxrss / 1024


class MaliciousPickle:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_malicious_pickle_runs_code_if_it_is_loaded(tmp_path):
    pickle.loads(pickle.dumps(MaliciousPickle(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("command", ["inspect", "train"])
@pytest.mark.parametrize("writer", ["pickle", "torch.save"])
def test_pickles_are_rejected_without_running_code(writer, command, cifar10, tmp_path):
    mark = tmp_path / "executed"
    path = tmp_path / "weights.safetensors"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(MaliciousPickle(mark)))
    else:
        torch.save(MaliciousPickle(mark), path)
    train = ["train", "--dataset", "cifar10", "--data", cifar10, *TINY_MODEL, "--threads", "1", "--weights", path]
    arguments = ["inspect", path] if command == "inspect" else [*train, "--out", tmp_path / "run"]
    assert f"[tensorion.safetensors] {path}" in run(*arguments, expect=1).stderr
    assert not mark.exists()


@pytest.mark.parametrize("name", ["header_of_2^60_bytes", "tensor_of_2^60_bytes", "empty_and_huge"])
def test_huge_sizes_in_headers_allocate_no_memory(name):
    usual = inspect(HOSTILE / "small")[2]
    status, errors, most = inspect(HOSTILE / name)
    assert status == 1
    assert str(HOSTILE / name) in errors
    assert most < usual + 32


def test_package_does_not_unpickle_files():
    """`torch.load` reads only tensors and plain containers, and the package does not read pickles in any other way."""
    folders = ["python/tensorion", "python/tensorion_lab", "examples", "benchmarks", "scripts", "docs", "lab"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".cpp"}]
    files += [ROOT / "README.md"]
    assert len(files) > 100
    for path in files:
        text = path.read_text()
        for call in re.findall(r"\btorch\.load\((?:[^()]|\([^()]*\))*\)", text):
            assert "weights_only=True" in call, f"{path}: {call}"
        found = re.search(r"pickle\.loads?\(|np\.load\(|torch::jit::load|unpickle", text)
        assert not found, f"{path}: {found[0]}"
