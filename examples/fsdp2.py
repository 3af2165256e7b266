"""Trains a small network with FSDP2, which shards parameters and momenta, and saves checkpoints.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1    # Otherwise restarts may use addresses of dead processes.
    torchrun --nproc-per-node 2 --max-restarts 3 fsdp2.py --checkpoints FOLDER

If it is started again, by you or by torchrun after a process died, it resumes from the last checkpoint. The number of
processes may differ. The images are generated, so no data is needed.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import tensorion


def network() -> nn.Sequential:
    def block(c_in: int, c_out: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride=2, padding=1), nn.ReLU())

    return nn.Sequential(block(1, 16), block(16, 32), block(32, 32), nn.Flatten(), nn.Linear(32 * 2 * 2, 4))


def make_images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Create images whose class is the quarter that is bright."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (count,), generator=generator)
    quarters = nn.functional.one_hot(y, 4).float().view(count, 1, 2, 2)
    x = quarters.repeat_interleave(8, 2).repeat_interleave(8, 3)
    return x + 0.5 * torch.randn(count, 1, 16, 16, generator=generator), y


def save(folder: Path, step: int, model: nn.Module, optimizer: tensorion.Tensorion) -> None:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder / f"{step:06d}")


def load(folder: Path, model: nn.Module, optimizer: tensorion.Tensorion) -> int:
    """Load the last complete checkpoint, and return its step, or 0 if there is none."""
    # The metadata is written last.
    complete = sorted(path.parent for path in folder.glob("*/.metadata"))
    if not complete:
        return 0
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=complete[-1])
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    return int(complete[-1].name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="global batch size")
    arguments = parser.parse_args()

    dist.init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = network().to(device)
    for module in model:
        if isinstance(module, nn.Sequential):
            fully_shard(module)
    fully_shard(model)

    # The arguments are the same as in one process, because DTensors carry their sharding.
    optimizer = tensorion.Tensorion(model.parameters(), lr=0.02, fallback_lr=3e-3)
    first = load(arguments.checkpoints, model, optimizer)
    if rank == 0 and first:
        print(f"resuming from step {first}", flush=True)

    for step in range(first + 1, arguments.steps + 1):
        x, y = make_images(arguments.batch_size, step)
        optimizer.zero_grad()
        output = model(x[rank::world_size].to(device))
        loss = nn.functional.cross_entropy(output, y[rank::world_size].to(device))
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}  loss {loss.item():.4f}", flush=True)
        if step % arguments.save_every == 0:
            save(arguments.checkpoints, step, model, optimizer)

    x, y = make_images(256, 0)
    with torch.no_grad():
        accuracy = (model(x.to(device)).argmax(1).cpu() == y).float().mean()
    if rank == 0:
        print(f"test accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
