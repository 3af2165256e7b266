"""Trains a small network with DistributedDataParallel. The ranks share the work of Tensorion's steps.

    torchrun --nproc-per-node 2 ddp.py

Each rank has the whole model and a part of each batch. The images are generated, so no data is needed.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tensorion


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 4),
    )


def make_images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Create images whose class is the quarter that is bright."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (count,), generator=generator)
    quarters = nn.functional.one_hot(y, 4).float().view(count, 1, 2, 2)
    x = quarters.repeat_interleave(8, 2).repeat_interleave(8, 3)
    return x + 0.5 * torch.randn(count, 1, 16, 16, generator=generator), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64, help="global batch size")
    arguments = parser.parse_args()

    dist.init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(network().to(device))

    # process_group is the only argument that differs from training in one process.
    optimizer = tensorion.Tensorion(model.parameters(), lr=0.02, fallback_lr=3e-3, process_group=dist.group.WORLD)
    if rank == 0:
        shapes = [param.shape for param in optimizer.param_groups[0]["params"]]
        plan = tensorion.plan(shapes, world_size)
        print(f"ranks {plan.owners} own the {len(shapes)} kernels; expected speedup {plan.speedup:.2f}")

    for step in range(1, arguments.steps + 1):
        x, y = make_images(arguments.batch_size, step)
        optimizer.zero_grad()
        output = model(x[rank::world_size].to(device))
        loss = nn.functional.cross_entropy(output, y[rank::world_size].to(device))
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}  loss {loss.item():.4f}", flush=True)

    x, y = make_images(256, 0)
    with torch.no_grad():
        accuracy = (model(x.to(device)).argmax(1).cpu() == y).float().mean()
    weights = torch.cat([param.detach().flatten() for param in model.parameters()])
    first = weights.clone()
    dist.broadcast(first, 0)
    same = torch.tensor(float(torch.equal(weights, first)), device=device)
    dist.all_reduce(same, op=dist.ReduceOp.MIN)
    if rank == 0:
        print(f"test accuracy {accuracy:.4f}; weights are {'the same' if same.item() else 'NOT the same'} on all ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
