import torch
from tiny_data import cifar10, image_folder  # the documented commands run on the data of the program's tests

__all__ = ["cifar10", "image_folder"]

# The tensors of the examples are small, so one thread is fastest.
torch.set_num_threads(1)
