"""Tensorion as a torch.optim optimizer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT, StateDict

from . import (
    _amp,
    _arguments,
    _distributed_step,
    _group_split,
    _options,
    _preflight,
    _sharding,
    _share,
    _skipped,
    _slices,
    _state,
)


class Tensorion(Optimizer):
    r"""Implements Tensorion: Muon for tensors of any order.

    A parameter `W` of order at least `min_order` with at least two modes larger than 1 is updated with its gradient `G`
    and its momentum `M`, which is unfolded to an `m x n` matrix:

        M <- G + momentum M
        X <- fold(polar(unfold(M)))                  (nesterov: polar(unfold(G + momentum M)))
        W <- (1 - lr weight_decay) W - lr scale X    scale = 0.2 sqrt(max(m, n))

    The fallback updates all other parameters, which get their own param group. The order of a parameter is the number
    of its modes after leading modes of size 1 are dropped: 4 for a `512 x 256 x 1 x 1` kernel, 2 for a `1 x 197 x 384`
    positional embedding.

    The constructor splits each param group by this rule. The key "algorithm" of the resulting groups is "tensorion",
    "adamw" or "sgd". A group that already has this key is not split. `tensorion.param_groups` creates groups by further
    rules, and `tensorion.describe` lists the algorithm of each parameter.

    The state of a parameter has the same form as in torch's optimizers: a `momentum_buffer` with the shape, dtype and
    memory format of the parameter, or `step`, `exp_avg` and `exp_avg_sq` for AdamW.

    Args:
        params (iterable): iterable of parameters, of `(name, parameter)` pairs, or of dicts that define param groups.
        lr (float or Tensor, optional): learning rate. A tensor on the CPU is read at each step. A tensor on an
            accelerator is used there without a synchronization (default: 1e-3).
        momentum (float, optional): momentum factor in [0, 1) (default: 0.95).
        nesterov (bool, optional): enables Nesterov momentum (default: False).
        weight_decay (float, optional): decoupled weight decay coefficient. It is multiplied by `lr`, not by
            `lr * scale` (default: 0.01).
        unfolding (str or tuple of int, optional): "balanced" is the squarest unfolding; "online" is the one with the
            largest nuclear norm; a tuple names the modes that become the rows. `(0,)` flattens kernels as Muon does. On
            accelerators, "online" compares only the unfoldings that are as square as the balanced one (default:
            "balanced").
        online_interval (int, optional): number of steps for which "online" keeps its choice. For tensors that are
            shared among ranks, "online" chooses at each step (default: 1).
        batch_modes (sequence of int, optional): modes that enumerate independent tensors, for example `(0,)` for a
            stack of experts. Each slice along them is unfolded, orthogonalized and scaled separately. The modes of
            `unfolding` are numbered within a slice (default: ()).
        split_sizes (int or sequence of int, optional): independent blocks along mode 0 of a parameter or of its slices:
            a number of equal blocks, for example 3 for a fused QKV projection, or the sizes of all blocks. Tensorion
            updates a parameter with `batch_modes` or `split_sizes` if all slices have at least two modes larger than 1
            (default: None).
        polar (str, optional): "auto", "halley", "newton_schulz" or "svd"; see `method` of `tensorion.polar` (default:
            "auto").
        ns_coefficients (str or sequence, optional): Newton-Schulz coefficients; see `tensorion.polar` (default: None).
        ns_steps (int, optional): number of Newton-Schulz steps; see `tensorion.polar` (default: None).
        adjust_lr_fn (str, optional): definition of `scale`. "match_rms_adamw" is `0.2 sqrt(max(m, n))`, which matches
            the RMS of AdamW's updates; "original" is `sqrt(max(1, m / n))`; "spectral_unclamped" is `sqrt(m / n)`;
            "conv_radius" is `1 / sqrt(h w)` for kernels whose modes after the first two are spatial (default:
            "match_rms_adamw").
        min_order (int, optional): parameters of lower order go to the fallback. With 2, matrices get Muon's update
            (default: 3).
        fallback (str, optional): "adamw" or "sgd", which use torch's fused kernels. None raises an error if a parameter
            needs a fallback (default: "adamw").
        fallback_lr (float or Tensor, optional): learning rate of the fallback. None means `lr` (default: None).
        fallback_weight_decay (float, optional): weight decay of the fallback. None means `weight_decay` (default:
            None).
        fallback_betas (tuple of float, optional): betas of AdamW, "betas" in its param groups (default: (0.9, 0.999)).
        fallback_eps (float, optional): epsilon of AdamW, "eps" in its param groups (default: 1e-8).
        fallback_momentum (float, optional): momentum of SGD, "momentum" in its param groups (default: 0.9).
        nonfinite (str, optional): what to do if a gradient contains a NaN or an infinity. "error" raises an error that
            names the parameter and changes nothing; "skip" skips the step without a synchronization and counts it in
            `skipped_steps`; "ignore" makes the step, after which parameters are NaN (default: "error").
        maximize (bool, optional): maximizes the objective instead of minimizing it (default: False).
        process_group (ProcessGroup, optional): a `torch.distributed` group whose ranks hold the same parameters, as
            with `DistributedDataParallel`. Each rank orthogonalizes some of the tensors and receives the updates of the
            others. With None, every rank does all the work. DTensors, for example from `fully_shard`, use their own
            mesh. Copies and pickles of the optimizer do not keep the group (default: None).

    Example:
        >>> model = torch.nn.Conv2d(3, 8, 3)
        >>> optimizer = tensorion.Tensorion(model.parameters(), lr=1e-3)
        >>> optimizer.zero_grad()
        >>> model(torch.randn(2, 3, 8, 8)).sum().backward()
        >>> optimizer.step()
    """

    #: Tells GradScaler that `step` unscales gradients and skips steps that overflowed; see `_amp`.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        momentum: float = 0.95,
        nesterov: bool = False,
        weight_decay: float = 0.01,
        unfolding: _arguments.UnfoldingLike = "balanced",
        online_interval: int = 1,
        batch_modes: Sequence[int] = (),
        split_sizes: int | Sequence[int] | None = None,
        polar: str = "auto",
        ns_coefficients: _arguments.CoefficientsLike | None = None,
        ns_steps: int | None = None,
        adjust_lr_fn: str = "match_rms_adamw",
        min_order: int = 3,
        fallback: str | None = "adamw",
        fallback_lr: float | Tensor | None = None,
        fallback_weight_decay: float | None = None,
        fallback_betas: tuple[float, float] = (0.9, 0.999),
        fallback_eps: float = 1e-8,
        fallback_momentum: float = 0.9,
        nonfinite: str = "error",
        maximize: bool = False,
        process_group: "dist.ProcessGroup | None" = None,
    ) -> None:
        given = locals()
        defaults = {option.name: given[option.name] for option in _options.TABLE}
        _options.checked({}, defaults, ranges=True)
        if not isinstance(params, Iterable):
            is_module = isinstance(params, torch.nn.Module)
            got = "a Module; pass model.parameters()" if is_module else type(params).__name__
            raise TypeError(f"[tensorion.Tensorion] params must be an iterable of Tensors or dicts, got {got}")
        self._process_group = _sharding.checked_group(process_group)
        self._groups_given = 0  # The number of groups before splitting, by which error messages count them.
        self._skipped: Tensor | None = None  # The number of skipped steps, on the device of the gradients.
        super().__init__(params, defaults)
        if not self.param_groups:
            raise ValueError("[tensorion.Tensorion] expected at least one parameter, got none")
        _share.warn_if_small(self.param_groups)

    @property
    def skipped_steps(self) -> int:
        """The number of steps that `nonfinite="skip"` has skipped. It is part of the state dict."""
        return 0 if self._skipped is None else int(self._skipped.item())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_groups_given": self._groups_given, "_skipped": self._skipped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Process groups can be neither copied nor pickled.
        self.__dict__.setdefault("_process_group", None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a param group, split by order unless it has the key "algorithm". If this raises, nothing is added.

        Args:
            param_group (dict): the parameters, under the key "params", and their options.
        """
        group = _group_split.normalized(param_group, self._groups_given)
        if not group["params"]:  # Trainers create empty groups, for example for a model without biases.
            self._groups_given += 1
            return
        parts = _group_split.split(group, self._groups_given, self.defaults, self.param_groups, self._process_group)
        count = len(self.param_groups)
        try:
            for part in parts:
                super().add_param_group(part)
        except Exception:
            del self.param_groups[count:]
            raise
        # torch adds all defaults to a group. Remove those that the group's algorithm does not read.
        for part in parts:
            for key in self.defaults.keys() - set(_options.KEYS[part["algorithm"]]):
                del part[key]
        self._groups_given += 1
        if self._skipped is None:
            self._skipped = _skipped.counter(self.param_groups)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Perform a single optimization step. Only parameters that have a gradient are updated.

        Args:
            closure (Callable, optional): a closure that reevaluates the model and returns the loss.

        Returns:
            The loss that `closure` returned, or None if there is no closure.

        Raises:
            ValueError: if an option or a gradient is invalid. No parameter and no state has changed then.
            RuntimeError: if another rank that shares parameters raised an error.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                _arguments.raise_type_error("step.closure", "callable", closure)
            with torch.enable_grad():
                loss = closure()
        overflow = _amp.unscale(self)
        # Everything is checked before anything changes.
        verdict = _preflight.check_step(self.param_groups, self.defaults, self.state, self._process_group, overflow)
        if verdict.skipped is not None:
            if self._skipped is None or self._skipped.device != verdict.skipped.device:
                self._skipped = _skipped.moved(self._skipped, verdict.skipped.device)
            self._skipped.add_(verdict.skipped)  # In place, so that replays of a captured graph are counted too.
        if verdict.skip:
            return loss
        tasks: list[_distributed_step.Task] = []
        for updates, options in zip(verdict.updates, verdict.options, strict=True):
            for update in updates:
                if update.new_state:
                    self.state[update.param].update(update.new_state)
            own = [update.param for update in updates if update.layout is None]
            shared = [(update.param, update.layout) for update in updates if update.layout is not None]
            if shared:
                tasks += self._accumulate(shared, options)
            if own:
                self._call(own, options, verdict.found_inf)
        if tasks:
            _distributed_step.run(tasks)
        return loss

    def _accumulate(
        self, shared: list[tuple[Tensor, _sharding.ShardLayout]], options: dict[str, Any]
    ) -> list[_distributed_step.Task]:
        """Update the momenta of parameters that are shared among ranks, and return the tasks that remain."""
        grads = [_sharding.to_local(param.grad) for param, _ in shared]
        targets = [_sharding.to_local(self.state[param]["momentum_buffer"]) for param, _ in shared]
        arguments = {key: options[key] for key in ("momentum", "maximize")}
        torch.ops.tensorion.add_gradients_(targets, grads, **arguments)
        if options["nesterov"]:
            targets = [target.clone() for target in targets]
            torch.ops.tensorion.add_gradients_(targets, grads, **arguments)
        batch_modes, split_sizes = options["batch_modes"], options["split_sizes"]
        options = {**options, "batch_modes": [], "split_sizes": []}
        tasks = []
        for (param, layout), target in zip(shared, targets, strict=True):
            pieces = (_sharding.to_local(param), target)
            if not batch_modes and not split_sizes:
                tasks.append(_distributed_step.Task(*pieces, layout, options))
                continue
            for views, place in _slices.slices(pieces, layout, batch_modes, split_sizes):
                tasks.append(_distributed_step.Task(*views, place, options))
        return tasks

    def _call(self, params: list[Tensor], options: dict[str, Any], found_inf: Tensor | None) -> None:
        """Update parameters of one group that this process updates without other ranks."""
        if not _options.keeps_unfolding(options):
            self._run_operator(params, options, found_inf)
            return
        for decide, members in _state.by_decision(params, self.state, options["online_interval"]):
            choices = [self.state[param]["unfolding"] for param in members]
            self._run_operator(members, options, found_inf, choices=choices, decide=decide)
        _state.count_steps(params, self.state, found_inf)

    def _run_operator(
        self, params: list[Tensor], options: dict[str, Any], found_inf: Tensor | None, **choices: Any
    ) -> None:
        """Call the operator of the group's algorithm."""
        algorithm = options["algorithm"]
        if algorithm == "tensorion":
            choices.setdefault("choices", [])
        states = [self.state[param] for param in params]
        lists = [[_sharding.to_local(state[key]) for state in states] for key in _state.KEYS[algorithm]]
        operators = {
            "tensorion": torch.ops.tensorion.step_,
            "adamw": torch.ops.tensorion.adamw_step_,
            "sgd": torch.ops.tensorion.sgd_step_,
        }
        operators[algorithm](
            [_sharding.to_local(param) for param in params],
            [_sharding.to_local(param.grad) for param in params],
            *lists,
            **choices,
            **_options.arguments(options),
            lr_tensor=_options.lr_tensor(options),
            found_inf=found_inf,
        )

    def state_dict(self) -> StateDict:
        """Return the state of the optimizer as a dict, in torch's format.

        If a param group has `nonfinite="skip"`, the dict also has the key "skipped_steps".
        """
        state_dict = super().state_dict()
        if self._skipped is not None:
            state_dict["skipped_steps"] = self.skipped_steps
        return state_dict

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the state of the optimizer. If the state does not fit, this raises an error and changes nothing.

        All ranks that share tensors must call this method. Either all of them load their states or none does.

        Args:
            state_dict (dict): an object returned by `state_dict`.

        Raises:
            ValueError: if the state does not fit the param groups.
            RuntimeError: if another rank that shares parameters raised an error.
        """
        checked: Mapping[str, Any] | None = None

        def check(_: Optimizer, state_dict: StateDict) -> StateDict:
            nonlocal checked
            error = None
            try:
                _state.check_state_dict(state_dict, self.param_groups, self.defaults)
            except Exception as caught:
                error = caught
            checked = state_dict
            _preflight.agree_on_load(self.param_groups, state_dict, error, self._process_group)
            return _state.completed(state_dict)

        # This is the last pre-hook, so it sees the changes that the user's hooks have made.
        handle = self.register_load_state_dict_pre_hook(check)
        try:
            if not isinstance(state_dict, Mapping):
                raise TypeError(f"[tensorion.Tensorion] state_dict must be a dict, got {type(state_dict).__name__}")
            with torch.inference_mode(False):
                super().load_state_dict(state_dict)
        except Exception as error:
            if checked is None:  # The error came before `check`, so the other ranks do not know of it yet.
                _preflight.agree_on_load(self.param_groups, None, error, self._process_group)
            raise
        finally:
            handle.remove()
        assert checked is not None
        self._skipped = _skipped.counter(self.param_groups, checked.get("skipped_steps", 0))
        for group, saved in zip(self.param_groups, checked["param_groups"], strict=True):
            for param, key in zip(group["params"], saved["params"], strict=True):
                if param in self.state:
                    _state.convert(self.state[param], param, checked["state"][key], group["algorithm"])
