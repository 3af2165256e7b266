"""Training survives kills, a full disk and damaged files: the result equals the result of an undisturbed run."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess

import pytest
import tiny_training
from program import PROGRAM, ROOT, files, read_json_lines, run
from support import load_script
from tiny_training import assert_same_results, stuck_after_an_epoch, without_times, write_cifar10

LAPLACE = ["laplace", "--problems", "3x4x2", "--optimizers", "adam,tensorion", "--lrs", "0.01,0.1", "--steps", "3"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with data, an undisturbed run, and an interrupted run with two checkpoints."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "data").mkdir()
    write_cifar10(folder / "data")
    run(*train(folder), "--out", folder / "whole")
    out = folder / "stopped"
    with stuck_after_an_epoch(*train(folder), "--out", out, "--checkpoint-every", "0", folder=out) as program:
        program.process.send_signal(signal.SIGINT)
        program.finish()
    assert program.process.returncode == 128 + signal.SIGINT
    assert {"checkpoint.safetensors", "checkpoint.previous.safetensors"} <= files(out)
    return folder


def train(folder):
    return ["train", *tiny_training.flags(folder / "data"), "--resume"]


def test_run_killed_at_random_moments_has_the_same_result(tmp_path):
    # `scripts/kill_test.py --kills 50` is a longer version of this test.
    script = load_script(ROOT / "scripts" / "kill_test.py")
    kills = int(os.environ.get("TENSORION_KILLS", "6"))
    counts = script.kill_test(tmp_path, kills, epochs=2)
    assert counts["kills"] == kills
    assert counts["while a file was written"] > 0


# ---- Damaged files


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


# Positions of a bit in a file with `bits` bits, of which the first `header` belong to the header.
PLACES = {
    "the first": lambda header, bits: 0,
    "the length's last": lambda header, bits: 7,
    "the header's first": lambda header, bits: 64,
    "in the header": lambda header, bits: random.Random(2).randrange(64, header),
    "in the tensors": lambda header, bits: random.Random(3).randrange(header, bits),
    "the last": lambda header, bits: bits - 1,
}


@pytest.mark.parametrize("place", PLACES)
def test_flipped_bit_in_a_checkpoint_is_detected(place, whole, tmp_path):
    out = tmp_path / "stopped"
    shutil.copytree(whole / "stopped", out)
    newest = out / "checkpoint.safetensors"
    bits = 8 * newest.stat().st_size
    header = 8 * (8 + int.from_bytes(newest.read_bytes()[:8], "little"))
    flip(newest, PLACES[place](header, bits))
    result = run(*train(whole), "--out", out)
    assert f"{newest}: " in result.stderr
    assert "continuing from the previous checkpoint" in result.stderr
    assert_same_results(out, whole / "whole")
    assert files(out) == files(whole / "whole")


def test_error_names_both_damaged_checkpoints_and_keeps_them(whole, tmp_path):
    out = tmp_path / "stopped"
    shutil.copytree(whole / "stopped", out)
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
        flip(out / name, 8 * (out / name).stat().st_size - 100)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    message = run(*train(whole), "--out", out, expect=1).stderr
    assert f"{out / 'checkpoint.safetensors'}: the file is damaged: its checksum is " in message
    assert f"{out / 'checkpoint.previous.safetensors'}: the file is damaged" in message
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_truncated_checkpoint_falls_back_to_previous_one(whole, tmp_path):
    out = tmp_path / "stopped"
    shutil.copytree(whole / "stopped", out)
    newest = out / "checkpoint.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    assert "continuing from the previous checkpoint" in run(*train(whole), "--out", out).stderr
    assert_same_results(out, whole / "whole")


# ---- A full disk


@contextlib.contextmanager
def small_disk(folder, size):
    """Mount a file system of this size in bytes. Skip the test without permission to mount."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """Fill the file system, and return the file that takes the space."""
    status = os.statvfs(folder)
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(status.f_bavail * status.f_frsize))
    return ballast


def limited(size):
    """Limit the size of files in bytes, which acts like a full disk and needs no permissions."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_disk_that_fills_up_during_training(whole, tmp_path):
    with small_disk(tmp_path / "disk", "16m") as disk:
        out = disk / "stopped"
        flags = [*train(whole), "--out", out, "--checkpoint-every", "0"]
        with stuck_after_an_epoch(*flags, folder=out) as program:
            ballast = fill(disk)
            message = program.finish()
        assert program.process.returncode == 1
        assert f"cannot write {out / 'checkpoint.new.safetensors'}: No space left on device" in message
        assert "The checkpoint saved in epoch 2 after step 0 is kept" in message
        assert {"checkpoint.safetensors", "config.json"} <= files(out)
        assert not [name for name in files(out) if name.endswith(".tmp")]
        ballast.unlink()
        run(*flags)
        assert_same_results(out, whole / "whole")


@pytest.mark.parametrize("name", ["train", "laplace"])
def test_disk_that_is_full_from_the_start(name, whole, tmp_path):
    command = train(whole) if name == "train" else [*LAPLACE, "--resume"]
    with small_disk(tmp_path / "disk", "1m") as disk:
        fill(disk)
        message = run(*command, "--out", disk / "out", expect=1).stderr
        assert f"{disk / 'out'}" in message
        assert "No space left on device" in message


def test_first_checkpoint_cannot_be_written(whole, tmp_path):
    out = tmp_path / "stopped"
    flags = [*train(whole), "--out", out]
    result = run(*flags, expect=1, preexec_fn=limited(100_000))
    assert f"{out / 'checkpoint.new.safetensors'}: File too large. There is no checkpoint yet" in result.stderr
    assert files(out) == {"config.json"}
    run(*flags)
    assert_same_results(out, whole / "whole")


def test_later_checkpoint_cannot_be_written(whole, tmp_path):
    out = tmp_path / "stopped"
    shutil.copytree(whole / "stopped", out)
    before = (out / "checkpoint.safetensors").read_bytes()
    flags = [*train(whole), "--out", out]
    result = run(*flags, expect=1, preexec_fn=limited(100_000))
    assert "File too large. The checkpoint saved in epoch " in result.stderr
    assert (out / "checkpoint.safetensors").read_bytes() == before
    run(*flags)
    assert_same_results(out, whole / "whole")


def test_laplace_on_a_full_disk(tmp_path):
    run(*LAPLACE, "--seeds", "0", "--out", tmp_path / "whole")
    out = tmp_path / "out"
    flags = [*LAPLACE, "--seeds", "0", "--out", out, "--resume"]
    limit = (tmp_path / "whole" / "metrics.jsonl").stat().st_size * 2 // 3
    message = run(*flags, expect=1, preexec_fn=limited(limit)).stderr
    assert f"cannot write {out / 'metrics.jsonl'}: File too large" in message
    assert (out / "metrics.jsonl").read_text().endswith("}\n")  # There are only complete lines.
    run(*flags)

    def errors(folder):
        rows = without_times(read_json_lines(folder / "metrics.jsonl"))
        return sorted(rows, key=lambda row: (row["optimizer"], row["lr"], row["step"]))

    assert errors(out) == errors(tmp_path / "whole")


def test_compare_on_a_full_disk(whole, tmp_path):
    flags = ["compare", *tiny_training.flags(whole / "data", epochs=1), "--optimizers", "sgd,adamw", "--lr", "0.01"]
    run(*flags, "--out", tmp_path / "whole")
    out = tmp_path / "out"
    message = run(*flags, "--out", out, "--resume", expect=1, preexec_fn=limited(100_000)).stderr
    assert f"{out / 'sgd-seed0' / 'checkpoint.new.safetensors'}: File too large" in message
    run(*flags, "--out", out, "--resume")
    for name in ("sgd-seed0", "adamw-seed0"):
        assert_same_results(out / name, tmp_path / "whole" / name)


def test_report_on_a_full_disk(whole, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "report"
    flags = ["report", whole / "whole", "--out", out, "--dpi", "40"]
    run(*flags)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    message = run(*flags, "--title", "Another", expect=1, preexec_fn=limited(1000)).stderr
    assert f"[tensorion report] cannot write {out}/" in message
    assert "File too large" in message
    assert "Traceback" not in message
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, *map(str, flags)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "cannot write to standard output: No space left on device" in result.stderr
    assert "Traceback" not in result.stderr
