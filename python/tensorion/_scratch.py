"""Memory that is kept between steps."""

import torch


def release_scratch() -> None:
    """Give back the memory for intermediate results, which on the CPU is kept from one step to the next.

    It is as much as a step ever needed at once: five times the largest unfolding, up to seven times for steep spectra,
    twelve times with `unfolding="online"`, or 16 MiB if that is more. The next step takes it again.
    """
    torch.ops.tensorion.release_scratch()
