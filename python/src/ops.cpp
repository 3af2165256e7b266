// The torch operators of the library, torch.ops.tensorion.*. This is the only TORCH_LIBRARY.
//
// No operator returns a view of its input. An operator whose m.def() has a function is a composite of ATen
// operators, which autograd, fake tensors and torch.compile trace through. The other operators are opaque and
// have a Meta kernel that computes shapes and checks arguments. The results of opaque operators that are not
// differentiable are detached.
#include <c10/util/StringUtil.h>
#include <torch/library.h>
#include <torch/version.h>

#include <vector>

#include "python/src/functions.h"
#include "python/src/optimizer_kernels.h"
#include "tensorion/scratch.h"
#include "tensorion/step.h"
#include "tensorion/unfolding.h"

namespace {

// Tags of opaque operators, which tell torch.compile what it may assume.
const std::vector<at::Tag> kCompilable{at::Tag::pt2_compliant_tag};

// Tags of opaque operators that always synchronize with the device. torch 2.7 and 2.8 have no tag for that.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
const auto& kReadsDevice = kCompilable;
#else
const std::vector<at::Tag> kReadsDevice{at::Tag::pt2_compliant_tag, at::Tag::cudagraph_unsafe};
#endif

}  // namespace

namespace ops = tensorion::ops;

TORCH_LIBRARY(tensorion, m) {
  m.def("unfoldings(int[] shape) -> int[][]", tensorion::unfoldings);
  m.def("balanced_unfolding(int[] shape) -> int[]", tensorion::balanced_unfolding);
  m.def("unfold(Tensor x, int[] modes) -> Tensor", ops::unfold);
  m.def("fold(Tensor matrix, int[] modes, SymInt[] shape) -> Tensor", ops::fold);
  m.def(
      "describe_unfolding(int[] shape, str unfolding, str adjust_lr_fn) -> (int[] modes, int rows, int cols, "
      "float scale)",
      ops::describe_unfolding);

  m.def("block_shapes(int[] shape, int[] batch_modes, int[] split_sizes) -> int[][]", ops::block_shapes);
  m.def("fallback_reason(int[] shape, int min_order, int[] batch_modes, int[] split_sizes) -> str",
        ops::fallback_reason);

  m.def("named_coefficients(str name) -> float[]", ops::named_coefficients);
  m.def("polar_express_schedule(int steps) -> float[]", ops::polar_express_schedule);
  m.def("polar(Tensor matrix, str method, float[]? ns_coefficients=None, int? ns_steps=None) -> Tensor",
        kCompilable);
  m.def(
      "lmo(Tensor x, str unfolding, str polar, int[][] family) -> (Tensor x, Tensor rows, Tensor value, "
      "Tensor upper, Tensor solved)",
      kReadsDevice);

  m.def("nuclear_norm(Tensor x, int[] modes) -> Tensor", kReadsDevice);
  m.def("dual_norm(Tensor x, int[][] family) -> Tensor", kReadsDevice);
  m.def("relaxed_norm(Tensor x, float tol, int[][] family) -> (Tensor lower, Tensor upper)", kReadsDevice);
  m.def("spectral_norm(Tensor x, int restarts, str field) -> (Tensor lower, Tensor upper)", kReadsDevice);
  m.def("conv_norm(Tensor kernel, int[] input_size, str padding, int[] stride, int[] dilation) -> Tensor",
        kReadsDevice);

  m.def(ops::check_options_schema(), torch::CppFunction::makeFromBoxedFunction<&ops::check_options>());
  m.def("check_parameters(Tensor[] params, str[] names) -> ()", ops::check_parameters);
  m.def(c10::str("step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momenta, Tensor(c!)[] choices, *, ",
                 ops::step_arguments(),
                 ", bool decide=True, Tensor? lr_tensor=None, Tensor? found_inf=None) -> ()")
            .c_str(),
        kCompilable);
  m.def("add_gradients_(Tensor(a!)[] momenta, Tensor[] grads, *, float momentum, bool maximize) -> ()",
        kCompilable);
  m.def(c10::str("directions_(Tensor(a!)[] results, Tensor[] targets, *, ", ops::step_arguments(), ") -> ()")
            .c_str(),
        kCompilable);
  m.def(
      "apply_directions_(Tensor(a!)[] params, Tensor[] directions, *, float lr, float weight_decay, Tensor? "
      "lr_tensor=None) -> ()",
      kCompilable);
  m.def("solving_cost(int[] shape, str unfolding) -> float", ops::solving_cost);
  m.def(
      "adamw_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] steps, *, float lr, float beta1, float beta2, float eps, float weight_decay, "
      "bool maximize, Tensor? lr_tensor=None, Tensor? found_inf=None) -> ()",
      kCompilable);
  m.def(
      "sgd_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, *, float lr, "
      "float momentum, float weight_decay, bool maximize, Tensor? lr_tensor=None, "
      "Tensor? found_inf=None) -> ()",
      kCompilable);
  m.def("first_nonfinite(Tensor[] tensors) -> Tensor", kCompilable);
  m.def("any_nonfinite(Tensor[] tensors) -> Tensor", kCompilable);
  m.def("scratch(Tensor like, int numel) -> Tensor", ops::scratch);
  m.def("release_scratch() -> ()", tensorion::release_scratch);
}

TORCH_LIBRARY_IMPL(tensorion, CompositeExplicitAutograd, m) {
  m.impl("polar", ops::polar);
  m.impl("lmo", ops::lmo);
  m.impl("nuclear_norm", ops::nuclear_norm);
  m.impl("dual_norm", ops::dual_norm);
  m.impl("relaxed_norm", ops::relaxed_norm);
  m.impl("spectral_norm", ops::spectral_norm);
  m.impl("conv_norm", ops::conv_norm);
  m.impl("step_", torch::CppFunction::makeFromBoxedFunction<&ops::step>());
  m.impl("add_gradients_", ops::add_gradients);
  m.impl("directions_", torch::CppFunction::makeFromBoxedFunction<&ops::directions>());
  m.impl("apply_directions_", ops::apply_directions);
  m.impl("adamw_step_", ops::adamw_step);
  m.impl("sgd_step_", ops::sgd_step);
  m.impl("first_nonfinite", tensorion::first_nonfinite);
  m.impl("any_nonfinite", tensorion::any_nonfinite);
}

TORCH_LIBRARY_IMPL(tensorion, Meta, m) {
  m.impl("polar", ops::polar_meta);
  m.impl("lmo", ops::lmo_meta);
  m.impl("nuclear_norm", ops::nuclear_norm_meta);
  m.impl("dual_norm", ops::dual_norm_meta);
  m.impl("relaxed_norm", ops::relaxed_norm_meta);
  m.impl("spectral_norm", ops::spectral_norm_meta);
  m.impl("conv_norm", ops::conv_norm_meta);
  for (const auto* name :
       {"step_", "add_gradients_", "directions_", "apply_directions_", "adamw_step_", "sgd_step_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&ops::no_result_meta>());
  }
  m.impl("first_nonfinite", ops::first_nonfinite_meta);
  m.impl("any_nonfinite", ops::any_nonfinite_meta);
}

TORCH_LIBRARY_IMPL(tensorion, Autograd, m) {
  for (const auto* name :
       {"polar", "lmo", "relaxed_norm", "spectral_norm", "conv_norm", "step_", "add_gradients_",
        "directions_", "apply_directions_", "adamw_step_", "sgd_step_", "first_nonfinite", "any_nonfinite"}) {
    m.impl(name, torch::CppFunction::makeFallthrough());
  }
}
