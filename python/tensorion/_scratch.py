"""Scratch memory that is kept between steps."""

import torch


def release_scratch() -> None:
    """Release the scratch memory that the CPU keeps from one step to the next.

    The scratch memory keeps the largest size that any step has needed so far. This is four to seven times the largest
    unfolding, depending on its singular values, or 16 MiB if that is more. With `process_group`, it includes messages
    between ranks. The next step allocates it again.
    """
    torch.ops.tensorion.release_scratch()
