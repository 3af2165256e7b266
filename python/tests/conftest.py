import torch

# The tests' tensors are small: more threads would only get in each other's way.
torch.set_num_threads(1)
