"""Groups the runs of a report.

A setup has the runs that can be compared: those with the same data set, identified by its fingerprint, and the
same model. Runs of a learning rate search form their own setup. A setup consists of groups. The runs of a group
differ only in the seed. The label of a group is the label in its configuration, or the optimizer if there is none.
If several groups have the same label, the options in which they differ are appended.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorion_lab.report.runs import Run, Status

OPTIMIZERS = ("sgd", "adamw", "muon", "tensorion")  # the order in figures; other optimizers follow
DATASETS = {
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny-imagenet": "Tiny ImageNet",
    "imagenette": "Imagenette",
    "imagefolder": "image folder",
}


# Keys of a configuration that do not distinguish groups. The fingerprint, which identifies the data, is part of the
# setup.
NO_OPTIONS = {"seed", "data", "data_fingerprint", "class_names", "preprocessing", "grid", "deviations"}


@dataclass(frozen=True)
class Group:
    label: str
    options: Mapping[str, Any]
    runs: Sequence[Run]

    @property
    def optimizer(self) -> str:
        return str(self.options["optimizer"])

    @property
    def counted(self) -> list[Run]:
        """The runs over which means are computed: the finished ones, or the unfinished ones if none has finished."""
        return self.with_status(Status.FINISHED) or self.with_status(Status.UNFINISHED)

    def with_status(self, status: Status) -> list[Run]:
        return [run for run in self.runs if run.status is status and run.epochs]


@dataclass(frozen=True)
class Setup:
    title: str
    groups: Sequence[Group]


def option_text(value: Any) -> str:
    """Formats the value of an option: modes as {0,2}, and empty values as "none"."""
    if value in (None, "", []):
        return "none"
    if modes := _modes(value):
        return "{" + ",".join(map(str, modes)) + "}"
    return value if isinstance(value, str) else json.dumps(value)


def _modes(value: Any) -> list[int]:
    """Parses the modes of an unfolding such as "(0,)" or "(0, 2)". Returns an empty list for other values."""
    is_modes = isinstance(value, str) and re.fullmatch(r"\(\d+(, \d+)*,?\)", value)
    return [int(mode) for mode in re.findall(r"\d+", value)] if is_modes else []


def _rank(value: Any) -> tuple[int, float, str]:
    """A sort key: numbers by value, then names, then sets of modes by their size."""
    if modes := _modes(value):
        return (2, len(modes), str(modes))
    if isinstance(value, int | float):
        return (0, value, "")
    return (1, 0, option_text(value))


def make_setups(runs: Sequence[Run]) -> list[Setup]:
    """Returns the setups sorted by title. Groups are sorted by OPTIMIZERS, then by the options that differ."""
    by_setup: dict[tuple[str, bool, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_setup[_title(run.config), _is_search(run), str(run.config.get("data_fingerprint", ""))].append(run)
    datasets: dict[str, set[str]] = defaultdict(set)
    for title, _, fingerprint in by_setup:
        datasets[title].add(fingerprint)

    def full_title(title: str, search: bool, fingerprint: str, some: Sequence[Run]) -> str:
        if len(datasets[title]) > 1:  # different data sets have the same name
            title += f", data {_folder(some[0])} ({fingerprint or 'not recorded'})"
        return title + (": learning rate search" if search else "")

    return [Setup(full_title(*key, by_setup[key]), _groups(by_setup[key])) for key in sorted(by_setup)]


def _is_search(run: Run) -> bool:
    return bool(run.config.get("grid"))


def _folder(run: Run) -> str:
    return Path(str(run.config.get("data") or run.folder)).name


def _title(config: Mapping[str, Any]) -> str:
    dataset, width = str(config["dataset"]), config.get("width", 1)
    model = re.sub(r"^resnet(?=\d+$)", "ResNet-", str(config["model"]))
    scaled = "" if width in (1, None) else f" (width {option_text(width)})"
    return f"{DATASETS.get(dataset, dataset)}, {model}{scaled}"


def _groups(runs: Sequence[Run]) -> list[Group]:
    alike: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        alike[json.dumps(_options(run), sort_keys=True)].append(run)
    unnamed = [
        (_options(members[0]) | extra, members)
        for some in alike.values()
        for extra, members in _split_repeated_seeds(some)
    ]
    ordered = []
    for options, members in unnamed:
        keys = differing([other for other, _ in unnamed if _name(other) == _name(options)])
        own = {key: options[key] for key in keys if key in options}
        group = Group(_label(_name(options), own), options, sorted(members, key=lambda run: run.seed))
        known = group.optimizer in OPTIMIZERS
        place = OPTIMIZERS.index(group.optimizer) if known else len(OPTIMIZERS)
        ordered.append(((place, group.optimizer, list(map(_rank, own.values())), group.label), group))
    return [group for _, group in sorted(ordered, key=lambda pair: pair[0])]


def _options(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.config.items() if key not in NO_OPTIONS}


def differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys whose values are not the same in all configurations, in order of appearance."""
    keys = dict.fromkeys(key for some in options for key in some)
    return [key for key in keys if len({json.dumps(some[key]) if key in some else None for some in options}) > 1]


def _name(options: Mapping[str, Any]) -> str:
    return str(options.get("label") or options["optimizer"])


def _label(name: str, own: Mapping[str, Any]) -> str:
    parts = [f"{key.replace('_', ' ')} {option_text(value)}" for key, value in own.items()]
    return f"{name} ({', '.join(parts)})" if parts else name


def _split_repeated_seeds(runs: Sequence[Run]) -> list[tuple[dict[str, Any], list[Run]]]:
    """Splits runs with equal options by their folders if a seed occurs twice, because they are not one sample then."""
    if len({run.seed for run in runs}) == len(runs):
        return [({}, list(runs))]
    by_folder: dict[Path, list[Run]] = defaultdict(list)
    for run in runs:
        by_folder[run.folder.resolve().parent].append(run)
    if any(len({run.seed for run in some}) < len(some) for some in by_folder.values()):
        by_folder = {run.folder.resolve(): [run] for run in runs}
    root = Path(os.path.commonpath(by_folder))
    return [
        ({"folder": root.name if folder == root else str(folder.relative_to(root))}, some)
        for folder, some in by_folder.items()
    ]
