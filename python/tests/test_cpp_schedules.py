"""The schedules of tensorion/schedule.h, compared with torch's schedulers."""

import math
import subprocess

import pytest
import torch
from test_trajectory import BUILD
from torch.optim import lr_scheduler as torch_schedulers

PROGRAM = BUILD / "tests" / "schedules"
LR = 0.3


def onecycle(steps, **options):
    return lambda optimizer: torch_schedulers.OneCycleLR(optimizer, LR, total_steps=steps, **options), steps


def cosine(steps, warmup=0, final=0.0, **linear):
    def make(optimizer):
        annealing = torch_schedulers.CosineAnnealingLR(optimizer, steps - warmup, eta_min=final * LR)
        if not warmup:
            return annealing
        # SequentialLR expects fresh schedulers, and starts from the initial learning rate.
        optimizer.param_groups[0]["lr"] = LR
        linear_warmup = torch_schedulers.LinearLR(optimizer, total_iters=warmup, **linear)
        return torch_schedulers.SequentialLR(optimizer, [linear_warmup, annealing], milestones=[warmup])

    return make, steps


#: The cases of tests/schedules.cpp.
CASES = [
    (lambda optimizer: torch_schedulers.ConstantLR(optimizer, 1.0), 3),
    (lambda optimizer: torch_schedulers.MultiStepLR(optimizer, [2, 5, 5], 0.5), 8),
    cosine(20),
    cosine(20, warmup=5),
    cosine(30, warmup=7, start_factor=0.01, final=0.1),
    onecycle(25),
    onecycle(2),
    onecycle(40, pct_start=0.2, anneal_strategy="linear", base_momentum=0.5, div_factor=10),
    onecycle(41, pct_start=0.25, final_div_factor=100, three_phase=True),
    onecycle(30, cycle_momentum=False),
]


@pytest.fixture(scope="module")
def schedules():
    output = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    return [[tuple(map(float, line.split())) for line in case.splitlines()] for case in output.strip().split("\n\n")]


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no C++ tests in {BUILD} (set TENSORION_BUILD_DIR)")
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.filterwarnings("ignore::UserWarning")  # The schedulers step without the optimizer.
def test_values_match_torch(schedules, case):
    make, steps = CASES[case]
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], LR, momentum=0.9)
    adamw = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], LR)
    drivers = [make(sgd), make(adamw)]
    assert len(schedules[case]) == steps
    for step, (lr, momentum) in enumerate(schedules[case]):
        # torch computes some schedules as running products, which accumulate rounding errors.
        assert sgd.param_groups[0]["lr"] / LR == pytest.approx(lr, rel=1e-12, abs=1e-14)
        if not math.isnan(momentum):
            assert sgd.param_groups[0]["momentum"] == pytest.approx(momentum, rel=1e-12)
            assert adamw.param_groups[0]["betas"] == pytest.approx((momentum, 0.999), rel=1e-12)
        if step + 1 < steps:
            for driver in drivers:
                driver.step()
