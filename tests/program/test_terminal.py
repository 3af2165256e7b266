"""The output of the program on a terminal during training."""

import fcntl
import os
import pty
import struct
import termios

import tiny_training
from program import PROGRAM


def on_a_terminal(*arguments, columns=100):
    """Return what the program writes to a terminal of 30 lines."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(PROGRAM, [str(PROGRAM), *map(str, arguments)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, output.decode()
    return output.decode()


def test_train_shows_live_line(cifar10, tmp_path):
    output = on_a_terminal("train", *tiny_training.flags(cifar10), "--out", tmp_path / "run")
    assert "images/s  optimizer" in output
    assert "ETA" in output
    assert "epoch 2/2  lr" in output


def test_compare_shows_live_table(cifar10, tmp_path):
    flags = ["--optimizers", "sgd,tensorion", "--out", tmp_path / "all"]
    output = on_a_terminal("compare", *tiny_training.flags(cifar10), *flags)
    last_table = output[output.rindex("run  ") :]
    assert [line.split()[2] for line in last_table.splitlines()[1:3]] == ["2/2", "2/2"]
    assert "diverged" not in output


def test_narrow_terminal_keeps_important_columns(cifar10, tmp_path):
    output = on_a_terminal("train", *tiny_training.flags(cifar10), "--out", tmp_path / "run", columns=60)
    live = [line for line in output.splitlines() if "ETA" in line]
    assert live
    assert all(len(line.rpartition("\x1b[J")[2]) < 60 for line in live)
    flags = ["--optimizers", "sgd,tensorion", "--out", tmp_path / "all"]
    output = on_a_terminal("compare", *tiny_training.flags(cifar10), *flags, columns=60)
    table = output[output.rindex("run  ") :].splitlines()[:3]
    assert all(len(line) < 60 for line in table)
    assert "accuracy" in table[0]


def test_last_progress_line_is_erased(cifar10, tmp_path):
    """Regression: the last progress line stayed on the screen."""
    output = on_a_terminal("train", *tiny_training.flags(cifar10), "--out", tmp_path / "run")
    after = output[output.rindex("  testing") :]
    assert "\x1b[1F\x1b[J" in after
