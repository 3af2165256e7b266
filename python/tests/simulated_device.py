"""A simulated accelerator, whose tensors are computed on the CPU.

Its tensors are wrapper subclasses. The library sees tensors of another device and takes its code paths for
accelerators. Every operator that runs on the device is recorded as a launch, or as a read if it copies values to the
host. Matrix products in half precision are accumulated in fp32 and rounded once, as on tensor cores.
"""

import functools
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend


class _Backend(_DummyBackendModule):
    """The device module that torch requires. There are two devices, without random number generators."""

    def device_count(self):
        return 2

    def get_rng_state(self, device=None):
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state, device=None):
        pass

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]


@functools.cache
def register():
    """Register the device with torch on its first use, since other code takes a registered device for a real one."""
    _setup_privateuseone_for_python_backend("simulated", _Backend())
    others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    others.fallback(torch.library.fallthrough_kernel)
    return others  # The caller keeps it, because the registration lasts only as long as the object.


ATEN = torch.ops.aten
#: Operators that copy values to the host.
READS = {ATEN._local_scalar_dense.default, ATEN.equal.default, ATEN.is_nonzero.default, ATEN.nonzero.default}
#: Operators that accept tensors of different devices.
COPIES = {ATEN._to_copy, ATEN.to, ATEN.copy_, ATEN._foreach_copy_}
PRODUCTS = {ATEN.mm.default, ATEN.bmm.default, ATEN.addmm.default, ATEN.baddbmm.default}


def is_simulated(device) -> bool:
    return torch.device(device).type == "simulated"


class SimulatedTensor(torch.Tensor):
    """A tensor on the simulated device. The tensor `cpu` holds its values."""

    @staticmethod
    def __new__(cls, cpu, device="simulated:0"):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            cpu.shape,
            strides=cpu.stride(),
            storage_offset=cpu.storage_offset(),
            dtype=cpu.dtype,
            device=torch.device(device),
        )

    def __init__(self, cpu, device="simulated:0"):
        self.values = cpu

    def __repr__(self):
        return f"SimulatedTensor({self.values!r}, device='{self.device}')"

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return _dispatch(operator, args, kwargs or {})


@dataclass
class Device(TorchDispatchMode):
    """A mode that records what happens on the device, and in which new tensors can be created there."""

    has_float64: bool = True
    launches: list = field(default_factory=list)
    #: Matrix products: their operators and numbers of multiplications.
    products: list = field(default_factory=list)
    reads: list = field(default_factory=list)

    def __post_init__(self):
        register()
        super().__init__()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return _dispatch(operator, args, kwargs or {}, self)

    @contextmanager
    def recorded(self):
        """Clear the records, and start recording."""
        self.launches.clear()
        self.products.clear()
        self.reads.clear()
        yield self


@functools.cache
def _autocast_library():
    """Register autocast kernels for batched products that only record the call."""
    register()
    library, met = torch.library.Library("aten", "IMPL"), []
    own_key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    for operator in (ATEN.bmm.default, ATEN.baddbmm.default):

        def kernel(_, *args, operator=operator, **kwargs):
            met.append(str(operator))
            with torch._C._ExcludeDispatchKeyGuard(own_key):
                return operator(*args, **kwargs)

        library.impl(operator, kernel, "AutocastPrivateUse1", with_keyset=True)
    return library, met


@contextmanager
def autocast(dtype=torch.bfloat16):
    """Enter torch.autocast on the device, and return a list of the products that it would have cast."""
    _, met = _autocast_library()
    met.clear()
    with torch.autocast("simulated", dtype):
        yield met


def to_device(tensor, device="simulated:0"):
    return SimulatedTensor(tensor.detach().clone(), device)


def to_cpu(tensor):
    return tensor.values.clone()


def _leaves(tree):
    found = []
    tree_map(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, tree)
    return found


def _one_device(operator, tensors, device):
    """Raise if the operator mixes devices. Only 0-dim tensors on the CPU may be combined with other devices."""
    for tensor in tensors:
        if tensor.device != device and not (tensor.device.type == "cpu" and tensor.dim() == 0):
            raise RuntimeError(f"{operator}: expected all tensors on {device}, got one on {tensor.device}")


def _dispatch(operator, args, kwargs, mode=None):
    tensors = _leaves((args, kwargs))
    simulated = [tensor for tensor in tensors if isinstance(tensor, SimulatedTensor)]
    # Copying operators may have the device among their positional arguments.
    names = [argument.name for argument in operator._schema.arguments]
    if "device" in names[: len(args)]:
        place = names.index("device")
        kwargs = {**dict(zip(names[place:], args[place:], strict=False)), **kwargs}
        args = args[:place]
    target = kwargs.get("device")
    if not simulated and not (target is not None and is_simulated(target)):
        return operator(*args, **kwargs)
    if operator.namespace == "tensorion":
        # Operators of this library see tensors of the device. The operators that they call are recorded too.
        with mode or nullcontext():
            return operator._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
    device = torch.device(target) if target is not None else simulated[0].device
    is_copy = operator.overloadpacket in COPIES
    if not is_copy:
        _one_device(operator, tensors, device)
    if mode is not None:
        written = args[0] if is_copy and target is None else None
        if operator in READS or device.type == "cpu" or any(x.device.type == "cpu" for x in _leaves(written)):
            mode.reads.append(str(operator))
        elif not operator.is_view:
            mode.launches.append(str(operator))
        if operator in PRODUCTS:
            left, right = [arg for arg in args if isinstance(arg, torch.Tensor)][-2:]
            mode.products.append((str(operator), left.numel() * right.shape[-1]))

    def unwrap(leaf):
        return leaf.values if isinstance(leaf, SimulatedTensor) else leaf

    plain_args, plain_kwargs = tree_map(unwrap, (args, kwargs))
    if target is not None:
        plain_kwargs["device"] = torch.device("cpu")
    result = _run(operator, plain_args, plain_kwargs)
    originals = {id(tensor.values): tensor for tensor in simulated}

    def wrap(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if device.type == "cpu":
            return leaf.clone() if id(leaf) in originals else leaf  # The host does not share memory with the device.
        if id(leaf) in originals and originals[id(leaf)].device == device:
            return originals[id(leaf)]
        if mode is not None and not mode.has_float64 and leaf.dtype == torch.float64:
            raise TypeError(f"{operator}: {device} has no float64")
        return SimulatedTensor(leaf, device)

    return tree_map(wrap, result)


def _run(operator, args, kwargs):
    if operator in PRODUCTS and args[0].dtype in (torch.float16, torch.bfloat16):
        wide = [arg.float() if isinstance(arg, torch.Tensor) else arg for arg in args]
        return operator(*wide, **kwargs).to(args[0].dtype)
    return operator(*args, **kwargs)
