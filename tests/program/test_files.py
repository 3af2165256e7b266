"""Files are hostile: nothing in them is executed, and no memory is taken for what they only promise."""

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
    """The exit status, what it said, and the most memory it had, in MB."""
    command = [PROGRAM, "inspect", path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        errors = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, errors, usage.ru_maxrss / 1024


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_the_bomb_goes_off_if_pickles_are_trusted(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("command", ["inspect", "train"])
@pytest.mark.parametrize("writer", ["pickle", "torch.save"])
def test_pickles_are_refused_and_not_executed(writer, command, cifar10, tmp_path):
    mark = tmp_path / "executed"
    path = tmp_path / "weights.safetensors"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Bomb(mark)))
    else:
        torch.save(Bomb(mark), path)
    train = ["train", "--dataset", "cifar10", "--data", cifar10, *TINY_MODEL, "--threads", "1", "--weights", path]
    arguments = ["inspect", path] if command == "inspect" else [*train, "--out", tmp_path / "run"]
    assert f"[tensorion.safetensors] {path}" in run(*arguments, expect=1).stderr
    assert not mark.exists()


@pytest.mark.parametrize("name", ["header_of_2^60_bytes", "tensor_of_2^60_bytes", "empty_and_huge"])
def test_no_memory_is_taken_for_what_a_header_promises(name):
    usual = inspect(HOSTILE / "small")[2]
    status, errors, most = inspect(HOSTILE / name)
    assert status == 1
    assert str(HOSTILE / name) in errors
    assert most < usual + 32


def test_no_file_is_unpickled():
    """`torch.load` reads tensors and plain containers only; nothing else reads pickles in Python."""
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
