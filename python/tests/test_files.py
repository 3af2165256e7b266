"""Files are hostile: nothing in them is executed, and no memory is taken for what they only promise."""

import os
import pickle
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from tiny_training import write_cifar10

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sysconfig.get_path("scripts")) / "tensorion"
HOSTILE = ROOT / "tests" / "fuzz" / "corpus" / "safetensors"


def run(*arguments):
    """The exit status, what it said, and the most memory it had, in MB."""
    command = [PROGRAM, *map(str, arguments)]
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


@pytest.mark.parametrize("write", [lambda bomb, path: path.write_bytes(pickle.dumps(bomb)), torch.save])
def test_pickles_are_refused_and_not_executed(write, tmp_path):
    mark = tmp_path / "executed"
    path = tmp_path / "weights.safetensors"
    write(Bomb(mark), path)
    write_cifar10(tmp_path)
    model = ["--model", "resnet18", "--width", "0.125", "--depths", "1,1,1,1", "--threads", "1"]
    train = ["train", "--dataset", "cifar10", "--data", tmp_path, *model, "--out", tmp_path / "run"]
    for command in (["inspect", path], [*train, "--weights", path]):
        status, errors, _ = run(*command)
        assert status == 1
        assert f"[tensorion.safetensors] {path}" in errors
        assert not mark.exists()
    # The bomb does go off where pickles are trusted.
    if write is not torch.save:
        pickle.loads(path.read_bytes())
        assert mark.exists()


@pytest.mark.parametrize("name", ["header_of_2^60_bytes", "tensor_of_2^60_bytes", "empty_and_huge"])
def test_no_memory_is_taken_for_what_a_header_promises(name):
    usual = run("inspect", HOSTILE / "small")[2]
    status, errors, most = run("inspect", HOSTILE / name)
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
