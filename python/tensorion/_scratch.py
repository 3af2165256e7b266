"""Scratch memory that is kept between steps."""

import torch


def release_scratch() -> None:
    """Release the scratch memory that the CPU keeps from one step to the next.

    The scratch memory keeps the largest size that any step has needed so far: at most five times the largest unfolding,
    seven times if its singular values decay steeply, and up to 16 times with `unfolding="online"`, or 16 MiB if that is
    more. The next step allocates it again.
    """
    torch.ops.tensorion.release_scratch()
