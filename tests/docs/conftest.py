import torch
from tiny_data import cifar10, image_folder  # the documented commands run on the data of the program's tests

__all__ = ["cifar10", "image_folder"]

# The examples' tensors are small: more threads would only get in each other's way.
torch.set_num_threads(1)
