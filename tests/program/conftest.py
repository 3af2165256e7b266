import signal

import pytest
from report_runs import make_comparison, report
from tiny_data import cifar10, image_folder

__all__ = ["cifar10", "compared", "image_folder"]

# The program does not handle signals that were ignored when it was started, for example by nohup or by a script that
# runs in the background. Tests send these signals, so restore their default handling.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """A report on a comparison, created where neither torch nor the package can be imported."""
    folder = tmp_path_factory.mktemp("runs") / "compared"
    values = make_comparison(folder)
    forbidden = tmp_path_factory.mktemp("forbidden")
    for name in ("torch", "tensorion"):
        (forbidden / f"{name}.py").write_text("raise RuntimeError('imported by a report')")
    result = report(folder, "--dpi", "80", path=forbidden)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return folder, values, result.stdout
