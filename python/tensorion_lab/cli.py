"""The console script `tensorion`. `report` and `export` run in Python; all other commands run the C++ program."""

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    # Python ignores SIGPIPE, and the program would inherit that: `tensorion ... | head` would not end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.argv[1:2] == ["report"]:
        from tensorion_lab.report.command import main as report

        sys.exit(report(sys.argv[2:]))
    if sys.argv[1:2] == ["export"]:
        from tensorion_lab.export.command import main as export

        sys.exit(export(sys.argv[2:]))
    # find_spec locates the package without importing it, because importing it would load torch.
    spec = find_spec("tensorion")
    program = Path(spec.origin).parent / "bin" / "tensorion" if spec and spec.origin else None
    if program is None or not program.is_file():
        sys.exit(
            "[tensorion] this package was installed without the program. Build both from the source tree: install "
            "CLI11, nlohmann-json, toml++, libjpeg, libpng and zlib (Debian: libcli11-dev nlohmann-json3-dev "
            "libtomlplusplus-dev libjpeg-dev libpng-dev zlib1g-dev), then "
            "`pip install --config-settings=cmake.define.TENSORION_LAB=ON .`"
        )
    os.environ["TENSORION_PYTHON"] = sys.executable  # the program draws figures with this interpreter
    os.execv(program, [str(program), *sys.argv[1:]])
