"""Times a step on ResNet-18's kernels with two processes that share it (process_group) and with one process.

    python benchmarks/processes.py [--rounds 5]

Each process has one thread. Both kinds of steps alternate in the same processes, which exchange directions with gloo.
The time of a shared step is the time of the slower process. The plan limits the speed-up, because one process solves
for a whole tensor. The last line of the output shows the cost of the busier process divided by the cost of all tensors.
"""

import argparse
import tempfile
import time
from pathlib import Path

import machine
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from measure import Ratio, paired_ratio
from workloads import trained_momenta

import tensorion

WORLD_SIZE = 2


def parameters(momenta: list[torch.Tensor]) -> list[torch.Tensor]:
    params = []
    for momentum in momenta:
        param = torch.zeros_like(momentum, requires_grad=True)
        param.grad = momentum.clone()
        params.append(param)
    return params


def run_rank(rank: int, folder: str, rounds: int) -> None:
    """Run one process. Rank 0 writes the times of all rounds."""
    torch.set_num_threads(1)
    place = Path(folder)
    dist.init_process_group("gloo", init_method=f"file://{place / 'ranks'}", rank=rank, world_size=WORLD_SIZE)
    momenta = torch.load(place / "momenta.pt", weights_only=True)
    shared = tensorion.Tensorion(parameters(momenta), process_group=dist.group.WORLD)
    alone = tensorion.Tensorion(parameters(momenta))
    times: dict[str, list[float]] = {"shared": [], "alone": []}
    for number in range(rounds + 1):  # the first round warms up
        dist.barrier()
        start = time.perf_counter()
        shared.step()
        seconds = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        if rank == 0:
            start = time.perf_counter()
            alone.step()
            if number > 0:
                times["shared"].append(float(seconds))
                times["alone"].append(time.perf_counter() - start)
        dist.barrier()
    if rank == 0:
        torch.save(times, place / "times.pt")
    dist.destroy_process_group()


def measure(rounds: int) -> tuple[Ratio, dict[str, list[float]]]:
    """Return the ratio of a shared step to a step of one process, and the seconds of each round."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save([momentum.detach() for momentum in trained_momenta()], Path(folder) / "momenta.pt")
        multiprocessing.start_processes(run_rank, (folder, rounds), nprocs=WORLD_SIZE, start_method="spawn")
        times = torch.load(Path(folder) / "times.pt", weights_only=True)
    return paired_ratio(times["shared"], times["alone"]), times


def planned() -> float:
    """Return the cost of the busier process divided by the cost of all tensors."""
    return 1 / tensorion.plan([tuple(momentum.shape) for momentum in trained_momenta()], WORLD_SIZE).speedup


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(machine.headline(machine.describe()))
    ratio, times = measure(rounds)
    for name, seconds in times.items():
        print(f"{name:10}", *(f"{1e3 * value:8.0f}" for value in seconds), "ms")
    print(f"shared / alone {ratio.median:.3f} (quartiles {ratio.low:.3f} to {ratio.high:.3f}), planned {planned():.3f}")


if __name__ == "__main__":
    main()
