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
    r"""Muon for tensors of any order.

    A tensor of order `min_order` or more, of which at least two modes are larger than 1, is updated, with its
    momentum unfolded to an `m x n` matrix, by

        M <- G + momentum M
        X <- fold(polar(unfold(M)))                  (nesterov: of G + momentum M)
        W <- (1 - lr weight_decay) W - lr scale X    scale = 0.2 sqrt(max(m, n))

    and every other tensor by a fallback, in a param group of its own. The order is the number of modes after leading
    modes of size 1 are dropped: 4 for a `512 x 256 x 1 x 1` kernel, 2 for a `1 x 197 x 384` positional embedding. The
    constructor splits each group that it is given by this rule, and the key "algorithm" ("tensorion", "adamw" or
    "sgd") says what a group became. A group that comes with that key is taken as it is. `tensorion.param_groups` makes
    groups by more rules; `tensorion.describe` says which parameter went where.

    State is kept as torch's own optimizers do: a `momentum_buffer` in the shape, dtype and memory format
    of the parameter (of AdamW: `step`, `exp_avg`, `exp_avg_sq`).

    Args:
        params: tensors, named pairs `(name, tensor)`, or dicts of these with options of their own.
        lr: the learning rate. A tensor on the CPU is read at each step; one on another device is used
            there without a synchronization.
        momentum: in [0, 1).
        nesterov: whether to look one step ahead.
        weight_decay: decoupled, of the learning rate before `scale`.
        unfolding: "balanced", the squarest; "online", the one with the largest nuclear norm; or a tuple of
            modes that become the rows: `(0,)` flattens kernels as Muon does. On accelerators "online"
            compares the unfoldings that are as square as the balanced one.
        online_interval: "online" decides anew every so many steps, and keeps its choice in between. For tensors
            that ranks share it decides at each step.
        batch_modes: modes that enumerate independent tensors, such as `(0,)` for a stack of experts. Each slice along
            them is unfolded, orthogonalized and scaled by itself; `unfolding` counts the modes of a slice.
        split_sizes: blocks along mode 0 of a parameter, or of its slices, that are independent tensors: a number of
            equal blocks, such as 3 for fused query, key and value, or the sizes of all blocks. A group with
            `batch_modes` or `split_sizes` is Tensorion's if all slices have at least two modes larger than 1.
        polar: "auto", "halley", "newton_schulz" or "svd", as `method` of `tensorion.polar`.
        ns_coefficients: as of `tensorion.polar`.
        ns_steps: as of `tensorion.polar`.
        adjust_lr_fn: what `scale` is. "match_rms_adamw": `0.2 sqrt(max(m, n))`, updates as large as
            AdamW's; "original": `sqrt(max(1, m / n))`; "spectral_unclamped": `sqrt(m / n)`; "conv_radius":
            `1 / sqrt(h w)`, where all modes after the first two are spatial.
        min_order: tensors of lower order go to the fallback; with 2 matrices get Muon's update.
        fallback: "adamw" or "sgd", torch's own fused kernels; None makes a tensor that is not Tensorion's an error.
        fallback_lr: of the fallback; None is `lr`.
        fallback_weight_decay: of the fallback; None is `weight_decay`.
        fallback_betas: of AdamW, "betas" in its groups.
        fallback_eps: of AdamW, "eps" in its groups.
        fallback_momentum: of SGD, "momentum" in its groups.
        nonfinite: what a gradient with a NaN or an infinity does. "error": it is named, and nothing at
            all is changed; "skip": the step is left out and counted in `skipped_steps`, without a
            synchronization; "ignore": parameters become NaN.
        maximize: ascend instead of descend.
        process_group: a `torch.distributed` group whose ranks hold the same tensors, as with
            `DistributedDataParallel`: each rank solves for some of them, and gets the updates of all. None:
            every rank does all the work. DTensors, as `fully_shard` makes them, bring their own mesh. A copy
            or a pickle of the optimizer does not keep the group.
    """

    #: Tells GradScaler that `step` unscales gradients, and skips those that overflowed, by itself: see `_amp`.
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
            got = type(params).__name__ + (": its .parameters() are" if isinstance(params, torch.nn.Module) else "")
            raise TypeError(f"[tensorion.Tensorion] params must be an iterable of Tensors or dicts, got {got}")
        self._process_group = _sharding.checked_group(process_group)
        self._groups_given = 0  # before they were split: what errors count by
        self._skipped: Tensor | None = None  # counted on the device
        super().__init__(params, defaults)
        if not self.param_groups:
            raise ValueError("[tensorion.Tensorion] expected at least one parameter in some group, got none")
        _share.warn_if_small(self.param_groups)

    @property
    def skipped_steps(self) -> int:
        """How many steps `nonfinite="skip"` has left out; the state dict keeps it."""
        return 0 if self._skipped is None else int(self._skipped.item())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_groups_given": self._groups_given, "_skipped": self._skipped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Connections to other processes cannot be copied.
        self.__dict__.setdefault("_process_group", None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, split by order unless it names its "algorithm". All of it or nothing."""
        group = _group_split.normalized(param_group, self._groups_given)
        if not group["params"]:  # trainers make such groups, for a model without biases say
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
        # torch fills a group up with all defaults, of which the algorithm reads only some.
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
        """Update the parameters that have a gradient.

        Args:
            closure: evaluates the model anew and returns the loss, which is returned.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                _arguments.refuse("step.closure", "callable", closure)
            with torch.enable_grad():
                loss = closure()
        overflow = _amp.unscale(self)
        # Everything is checked before anything changes.
        verdict = _preflight.check_step(self.param_groups, self.defaults, self.state, self._process_group, overflow)
        if verdict.skipped is not None:
            if self._skipped is None or self._skipped.device != verdict.skipped.device:
                self._skipped = _skipped.moved(self._skipped, verdict.skipped.device)
            self._skipped.add_(verdict.skipped)  # in place, so that replays of a captured graph count, too
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
        """Update the momenta of parameters that ranks share. What remains to be done is the result."""
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
        """Update what this process has of the parameters of a group."""
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
        """The operator of the group's algorithm."""
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
        """As torch's, with `"skipped_steps"` if a group skips steps that are not finite."""
        state_dict = super().state_dict()
        if self._skipped is not None:
            state_dict["skipped_steps"] = self.skipped_steps
        return state_dict

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from a state: all of it, or nothing if it does not fit, with an error that says where.

        Ranks that share tensors must all call it: they load their states together, or none of them does.
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

        # As the last of the pre-hooks, it sees what the others made of the state.
        handle = self.register_load_state_dict_pre_hook(check)
        try:
            if not isinstance(state_dict, Mapping):
                raise TypeError(f"[tensorion.Tensorion] state_dict must be a dict, got {type(state_dict).__name__}")
            with torch.inference_mode(False):
                super().load_state_dict(state_dict)
        except Exception as error:
            if checked is None:  # what is wrong was found before: the other ranks do not know yet
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
