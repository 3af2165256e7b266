"""Helpers that write runs in the program's format and read reports."""

import json
import os
import re
import subprocess
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
from program import PROGRAM

OPTIMIZERS = ("sgd", "adamw", "muon", "tensorion")
FIGURES = {"test_accuracy", "test_accuracy_over_time", "test_loss", "train_loss", "optimizer_share"}
QUANTITIES = ("train_loss", "test_loss", "test_accuracy", "seconds", "optimizer_seconds")
SAMPLES = 6000


def report(*arguments, path=None):
    """Run `tensorion report`. Modules in the folder `path` take precedence."""
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [PROGRAM, "report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def make_run(folder, optimizer="sgd", seed=0, epochs=5, status="finished", **options):
    """Write a run in the format of `tensorion train`, and return its quantities as arrays over the epochs."""
    rng = np.random.default_rng([seed, *optimizer.encode()])
    decay = np.exp(-np.arange(1, epochs + 1) / 2)
    values = {
        "train_loss": 0.1 + 2 * decay * rng.uniform(0.9, 1.1, epochs),
        "test_loss": 0.3 + decay * rng.uniform(0.9, 1.1, epochs),
        "test_accuracy": 0.9 - 0.5 * decay * rng.uniform(0.9, 1.1, epochs),
        "seconds": rng.uniform(20, 22, epochs),
        "optimizer_seconds": rng.uniform(1, 4, epochs),
    }
    folder.mkdir(parents=True)
    config = {"dataset": "fashion-mnist", "model": "resnet18", "width": 0.25, "optimizer": optimizer}
    config |= {"epochs": epochs, "seed": seed, "train_samples": SAMPLES, "weights": ""} | options
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    with open(folder / "metrics.jsonl", "w") as file:
        for i in range(epochs):
            line = {"run": folder.name, "optimizer": optimizer, "seed": seed, "epoch": i + 1, "lr": 0.1}
            file.write(json.dumps(line | {name: values[name][i] for name in QUANTITIES}) + "\n")
    if status:
        summary = {"status": status} | ({"reason": "the loss is nan"} if status == "diverged" else {})
        (folder / "summary.json").write_text(json.dumps(summary))
    return values


def make_comparison(folder, optimizers=OPTIMIZERS, seeds=(0, 1, 2), **options):
    """Write one run per optimizer and seed, and the files of the comparison itself."""
    values = {
        name: [make_run(folder / f"{name}-seed{seed}", name, seed, **options) for seed in seeds] for name in optimizers
    }
    lines = [path.read_text() for path in sorted(folder.glob("*/metrics.jsonl"))]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (folder / "summary.json").write_text(json.dumps({"optimizers": [], "runs": []}))
    return values


def rows(table):
    """Return the cells of a printed table by row label."""
    lines = table.split("\n\n")[1].splitlines()
    assert lines[0].split()[0] == "optimizer"
    cells = [re.split(r"\s{2,}", re.sub(r"± +", "± ", line)) for line in lines[1:] if not line.startswith("(")]
    return {label: rest for label, *rest in cells}


def spread(values, digits):
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


class Page(HTMLParser):
    """Collects the tags, texts, table cells and attributes of a page."""

    VOID = ("meta", "img")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text, self.attributes, self.cells, self.images = [], [], [], [], [[]], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "img":
            self.images.append(dict(attrs))
        if tag == "tr":
            self.cells.append([])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1].append(data)


def colours_in(path):
    """Count the pixels of each color."""
    pixels = np.round(255 * matplotlib.image.imread(path)[..., :3]).astype(int)
    names, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    return {f"#{r:02X}{g:02X}{b:02X}": count for (r, g, b), count in zip(names, counts, strict=True)}


def cut_short(folder, epochs, half=False, **last):
    """Keep the first epochs of a run, change values of the last one, and optionally add half a line."""
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = lines[:epochs]
    if last:
        kept[-1] = json.dumps(json.loads(kept[-1]) | last) + "\n"
    (folder / "metrics.jsonl").write_text("".join(kept) + (lines[epochs][:40] if half else ""))
