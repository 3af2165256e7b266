"""The command `tensorion export`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tensorion_lab.export.metrics import read_metrics
from tensorion_lab.export.targets import to_csv, to_tensorboard, to_wandb
from tensorion_lab.report.errors import ReportError


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        runs = read_metrics(options.directories)
        if options.csv:
            lines = to_csv(runs, options.csv)
        elif options.tensorboard:
            lines = to_tensorboard(runs, options.tensorboard)
        else:
            lines = to_wandb(runs, options.project)
        print("\n".join(lines))
    except ReportError as error:
        print(f"[tensorion export] {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"[tensorion export] {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensorion export",
        description="Write the metrics of runs, for each epoch and each logged step, for other tools.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="the results of `tensorion train` or `tensorion compare`, or a folder of runs",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--tensorboard", metavar="OUT", type=Path, help="write TensorBoard event files, one folder per run"
    )
    target.add_argument("--csv", metavar="OUT", type=Path, help="write metrics.csv and steps.csv to this folder")
    target.add_argument("--wandb", action="store_true", help="upload to Weights & Biases with your login")
    parser.add_argument("--project", default="tensorion", help="project in Weights & Biases (default: %(default)s)")
    return parser
