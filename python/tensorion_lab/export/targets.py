"""Writes metrics to CSV files, TensorBoard or Weights & Biases."""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorion_lab.export.metrics import RunMetrics, numbers
from tensorion_lab.report.errors import ReportError


def to_csv(runs: Sequence[RunMetrics], out: Path) -> list[str]:
    """Writes metrics.csv with a line for each epoch of each run and, if steps were logged, steps.csv."""
    out.mkdir(parents=True, exist_ok=True)
    written = [_write_table(out / "metrics.csv", [(run.name, row) for run in runs for row in run.epochs])]
    steps = [(run.name, row) for run in runs for row in run.steps]
    if steps:
        written.append(_write_table(out / "steps.csv", steps))
    return written


def _write_table(path: Path, rows: Sequence[tuple[str, dict[str, Any]]]) -> str:
    columns = dict.fromkeys(key for _, row in rows for key in row if key != "run")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *columns])
        writer.writerows([name, *(row.get(column, "") for column in columns)] for name, row in rows)
    return str(path)


def to_tensorboard(runs: Sequence[RunMetrics], out: Path) -> list[str]:
    """Writes a folder of event files for each run."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ReportError(f"--tensorboard needs {error.name}: pip install 'tensorion[tensorboard]'") from None
    for run in runs:
        with SummaryWriter(str(out / run.name)) as writer:
            writer.add_text("config", f"```json\n{json.dumps(run.config, indent=2)}\n```")
            for row in run.epochs:
                for key, value in numbers(row, "epoch").items():
                    writer.add_scalar(f"epoch/{key}", value, row["epoch"])
            for row in run.steps:
                for key, value in numbers(row, "epoch", "step").items():
                    writer.add_scalar(f"step/{key}", value, row["step"])
    return [f"{out}: view it with tensorboard --logdir {out}"]


def to_wandb(runs: Sequence[RunMetrics], project: str) -> list[str]:
    """Uploads each run to a project in the user's Weights & Biases account."""
    try:
        import wandb
    except ModuleNotFoundError:
        raise ReportError("--wandb needs wandb: pip install 'tensorion[wandb]'") from None
    offline = os.environ.get("WANDB_MODE") == "offline"
    if not offline and not (os.environ.get("WANDB_API_KEY") or wandb.api.api_key):
        raise ReportError("--wandb needs your login: run `wandb login`, or set WANDB_MODE=offline to upload later")
    for run in runs:
        with wandb.init(project=project, name=run.name, config=run.config) as upload:
            upload.define_metric("epoch/*", step_metric="epoch")
            upload.define_metric("step/*", step_metric="step")
            for row in run.steps:
                values = numbers(row, "epoch", "step")
                upload.log({"step": row["step"], **{f"step/{key}": value for key, value in values.items()}})
            for row in run.epochs:
                values = numbers(row, "epoch")
                upload.log({"epoch": row["epoch"], **{f"epoch/{key}": value for key, value in values.items()}})
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    if offline:
        return [f"{count} saved offline in ./wandb (WANDB_MODE); upload with: wandb sync wandb/offline-run-*"]
    return [f"{count} uploaded to the project {project}"]
