"""Writes golden/schedules.json: the values of torch's schedulers at every step."""

import json
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler

BASE_LR = 0.3


def optimizers():
    parameter = torch.nn.Parameter(torch.zeros(1))
    return torch.optim.SGD([parameter], BASE_LR, momentum=0.9), torch.optim.AdamW([parameter], BASE_LR)


def values(optimizer, scheduler, steps, stride=1):
    """Returns the learning rate and the momentum (or beta1) of every step. The scheduler steps every `stride` steps."""
    rows = []
    for step in range(steps):
        group = optimizer.param_groups[0]
        rows.append((group["lr"] / BASE_LR, group.get("momentum", group.get("betas", [0])[0])))
        if (step + 1) % stride == 0 and step + 1 < steps:
            scheduler.step()
    return rows


def case(name, make, epochs, steps_per_epoch, by_epoch=False, **options):
    steps = epochs * steps_per_epoch
    stride = steps_per_epoch if by_epoch else 1
    sgd, adamw = optimizers()
    of_sgd = values(sgd, make(sgd, steps), steps, stride)
    of_adamw = values(adamw, make(adamw, steps), steps, stride)
    assert [lr for lr, _ in of_sgd] == [lr for lr, _ in of_adamw]
    return {
        "schedule": name,
        "epochs": epochs,
        "steps_per_epoch": steps_per_epoch,
        **options,
        "lr": [lr for lr, _ in of_sgd],
        "momentum": [momentum for _, momentum in of_sgd],
        "beta1": [beta1 for _, beta1 in of_adamw],
    }


def one_cycle(cycle_momentum):
    return lambda optimizer, steps: lr_scheduler.OneCycleLR(
        optimizer, BASE_LR, total_steps=steps, cycle_momentum=cycle_momentum
    )


def multistep(milestones, gamma):
    return lambda optimizer, steps: lr_scheduler.MultiStepLR(optimizer, milestones, gamma)


def main():
    warnings.simplefilter("ignore")  # torch warns because the schedulers step without the optimizer
    cases = [
        case("constant", lambda optimizer, steps: lr_scheduler.ConstantLR(optimizer, 1.0), 2, 3),
        case("cosine", lambda optimizer, steps: lr_scheduler.CosineAnnealingLR(optimizer, steps), 4, 5),
        case("cosine", lambda optimizer, steps: lr_scheduler.CosineAnnealingLR(optimizer, steps), 1, 1),
        case("multistep", multistep([2, 3], 0.1), 4, 3, by_epoch=True, milestones=[], gamma=0.1),
        case("multistep", multistep([3, 5], 0.1), 6, 2, by_epoch=True, milestones=[], gamma=0.1),
        case("multistep", multistep([1, 4, 4], 0.5), 6, 2, by_epoch=True, milestones=[1, 4, 4], gamma=0.5),
        case("onecycle", one_cycle(True), 5, 5, cycle_momentum=True),
        case("onecycle", one_cycle(False), 3, 7, cycle_momentum=False),
        case("onecycle", one_cycle(True), 1, 2, cycle_momentum=True),
    ]
    path = Path(__file__).parents[1] / "golden" / "schedules.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


if __name__ == "__main__":
    main()
