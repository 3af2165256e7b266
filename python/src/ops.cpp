// The torch operators of the library, torch.ops.tensorion.*. This is the only TORCH_LIBRARY.
//
// No operator returns a view of its input. An operator whose m.def() has a function is a composite of ATen
// operators, which autograd, fake tensors and torch.compile trace through. The other operators are opaque and
// have a Meta kernel that computes shapes and checks arguments. The results of opaque operators that are not
// differentiable are detached.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include "tensorion/fallback.h"
#include "tensorion/lmo.h"
#include "tensorion/norms.h"
#include "tensorion/optim/option_table.h"
#include "tensorion/optim/parameter_checks.h"
#include "tensorion/optimizer.h"
#include "tensorion/param_groups.h"
#include "tensorion/polar.h"
#include "tensorion/scratch.h"
#include "tensorion/step.h"
#include "tensorion/unfolding.h"

namespace {

using at::Tensor;
using c10::IValue;
using tensorion::PolarOptions;
using tensorion::UnfoldingStrategy;
using OptionalTensor = std::optional<Tensor>;

// ---- Arguments

// The arguments of a call by name, for boxed kernels whose schema is generated from the table of options.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : schema_(op.schema()), values_(torch::jit::last(stack, schema_.arguments().size())) {}

  size_t size() const { return values_.size(); }

  // Returns None if the operator has no such argument.
  IValue operator[](const std::string& name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index ? values_[*index] : IValue();
  }

  tensorion::TensorionOptions options() const {
    tensorion::TensorionOptions options;
    for (const auto& option : tensorion::option_table()) {
      if (const auto index = schema_.argumentIndexWithName(option.name)) option.set(options, values_[*index]);
    }
    return options;
  }

  tensorion::StepOptions step_options() const {
    auto step = options().step_options();
    step.lr_tensor = (*this)["lr_tensor"].toOptional<Tensor>();
    step.found_inf = (*this)["found_inf"].toOptional<Tensor>();
    return step;
  }

 private:
  const c10::FunctionSchema& schema_;
  at::ArrayRef<IValue> values_;
};

// Returns the schema of the options in StepOptions: "float lr, float momentum, ...".
std::string step_arguments() {
  std::vector<std::string> arguments;
  for (const auto& option : tensorion::option_table()) {
    if (option.is_step) arguments.push_back(c10::str(option.type->str(), " ", option.name));
  }
  return c10::Join(", ", arguments);
}

// The schema of check_options: all options with their defaults, and whether to check their ranges.
c10::FunctionSchema check_options_schema() {
  const tensorion::TensorionOptions defaults;
  std::vector<c10::Argument> arguments;
  const auto add = [&](const char* name, const c10::TypePtr& type, const std::optional<IValue>& initial) {
    arguments.emplace_back(name, type, /*N=*/std::nullopt, initial, /*kwarg_only=*/true);
  };
  for (const auto& option : tensorion::option_table()) add(option.name, option.type, option.get(defaults));
  add("ranges", c10::BoolType::get(), std::nullopt);
  return {"tensorion::check_options", "", std::move(arguments), {}};
}

// Returns a 0-dim tensor on the device of `like`. Since accelerators may lack float64, kDouble becomes kFloat
// there, unless `like` itself is float64.
Tensor number(double value, at::ScalarType dtype, const Tensor& like) {
  const bool in_single = dtype == at::kDouble && !like.is_cpu() && like.scalar_type() != at::kDouble;
  return at::full({}, value, at::TensorOptions().dtype(in_single ? at::kFloat : dtype).device(like.device()));
}

// For Meta kernels. without_elements() returns an empty tensor with the dtype and number of modes of `x`, on
// which functions run only their checks. uninitialized() returns a contiguous result with the shape of `x`.
Tensor without_elements(const Tensor& x) {
  return at::zeros(std::vector<int64_t>(x.dim(), 0), at::TensorOptions().dtype(x.scalar_type()));
}
Tensor uninitialized(const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); }
Tensor uninitialized_number(at::ScalarType dtype, const Tensor& like) {
  return at::empty({}, like.options().dtype(dtype));
}

// ---- Unfoldings

// Returns a contiguous `result` that does not alias `input`. Under vmap, tensors have no storage to compare.
Tensor owned(const Tensor& result, const Tensor& input) {
  if (result.has_storage() && !result.is_alias_of(input)) return result.contiguous();
  return result.clone(at::MemoryFormat::Contiguous);
}

Tensor unfold(const Tensor& x, at::IntArrayRef modes) { return owned(tensorion::unfold(x, modes), x); }

Tensor fold(const Tensor& matrix, at::IntArrayRef modes, c10::SymIntArrayRef shape) {
  std::vector<int64_t> sizes;
  for (const auto& size : shape) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  return owned(tensorion::fold(matrix, modes, sizes), matrix);
}

// Returns the modes, rows and columns of the unfolding that a step uses for this shape, and the scale of the
// update. The choice of "online" depends on the values, so for it only the shape is checked.
std::tuple<std::vector<int64_t>, int64_t, int64_t, double> describe_unfolding(
    at::IntArrayRef shape, const std::string& unfolding, const std::string& adjust_lr_fn) {
  const auto strategy = UnfoldingStrategy::parse(unfolding);
  const auto chosen = strategy.choose(shape);
  if (strategy.is_online()) return {{}, 0, 0, 0};
  return {chosen.modes(), chosen.rows(), chosen.cols(), tensorion::adjusted_scale(chosen, adjust_lr_fn)};
}

// Returns the shapes of the independent blocks in one slice of a parameter of this shape.
std::vector<std::vector<int64_t>> block_shapes(at::IntArrayRef shape, at::IntArrayRef batch_modes,
                                               at::IntArrayRef split_sizes) {
  return tensorion::Slicing{batch_modes.vec(), split_sizes.vec()}.block_shapes(shape);
}

std::string fallback_reason(at::IntArrayRef shape, int64_t min_order, at::IntArrayRef batch_modes,
                            at::IntArrayRef split_sizes) {
  tensorion::TensorionOptions options;
  options.min_order(min_order).batch_modes(batch_modes.vec()).split_sizes(split_sizes.vec());
  return tensorion::fallback_reason(shape, options);
}

// ---- Polar factors and the LMO

Tensor polar(const Tensor& matrix, const std::string& method,
             const std::optional<c10::List<double>>& ns_coefficients, std::optional<int64_t> ns_steps) {
  PolarOptions options{method, std::nullopt, ns_steps};
  if (ns_coefficients) options.ns_coefficients = tensorion::unflatten(ns_coefficients->vec());
  return tensorion::polar(matrix, options).contiguous();
}

Tensor polar_meta(const Tensor& matrix, const std::string& method,
                  const std::optional<c10::List<double>>& ns_coefficients, std::optional<int64_t> ns_steps) {
  polar(without_elements(matrix), method, ns_coefficients, ns_steps);
  return uninitialized(matrix);
}

std::vector<double> named_coefficients(const std::string& name) {
  return tensorion::flatten(tensorion::named_coefficients(name));
}

std::vector<double> polar_express_schedule(int64_t steps) {
  return tensorion::flatten(tensorion::polar_express_schedule(steps));
}

using Lmo = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// Returns x, a mask of the modes that are rows, value, upper and solved.
Lmo lmo(const Tensor& x, const std::string& unfolding, const std::string& polar,
        const tensorion::Family& family) {
  PolarOptions options;
  options.method = polar;
  const auto result = tensorion::lmo(x, UnfoldingStrategy::parse(unfolding), options, family);
  auto rows = at::zeros({x.dim()}, at::kBool);
  for (const int64_t mode : result.modes) rows[mode] = true;
  return {result.x.contiguous(), rows.to(x.device()), number(result.value, at::kDouble, x),
          number(result.upper, at::kDouble, x), number(static_cast<double>(result.solved), at::kLong, x)};
}

Lmo lmo_meta(const Tensor& x, const std::string& unfolding, const std::string& polar,
             const tensorion::Family& family) {
  lmo(without_elements(x), unfolding, polar, family);
  return {uninitialized(x), at::empty({x.dim()}, x.options().dtype(at::kBool)),
          uninitialized_number(at::kDouble, x), uninitialized_number(at::kDouble, x),
          uninitialized_number(at::kLong, x)};
}

// ---- Norms. The gradients of nuclear_norm and dual_norm are registered in Python.

using Bounds = std::tuple<Tensor, Tensor>;

Bounds bounds(const tensorion::NormBounds& norm, const Tensor& x) {
  return {number(norm.lower, at::kDouble, x), number(norm.upper, at::kDouble, x)};
}
Bounds uninitialized_bounds(const Tensor& x) {
  return {uninitialized_number(at::kDouble, x), uninitialized_number(at::kDouble, x)};
}

Tensor nuclear_norm(const Tensor& x, at::IntArrayRef modes) {
  return tensorion::nuclear_norm(x.detach(), modes);
}
Tensor nuclear_norm_meta(const Tensor& x, at::IntArrayRef modes) {
  tensorion::nuclear_norm(without_elements(x), modes);
  return uninitialized_number(x.scalar_type(), x);
}

Tensor dual_norm(const Tensor& x, const tensorion::Family& family) {
  return tensorion::dual_norm(x.detach(), family);
}
Tensor dual_norm_meta(const Tensor& x, const tensorion::Family& family) {
  dual_norm(without_elements(x), family);
  return uninitialized_number(x.scalar_type(), x);
}

Bounds relaxed_norm(const Tensor& x, double tol, const tensorion::Family& family) {
  return bounds(tensorion::relaxed_norm(x, tol, family), x);
}
Bounds relaxed_norm_meta(const Tensor& x, double tol, const tensorion::Family& family) {
  relaxed_norm(without_elements(x), tol, family);
  return uninitialized_bounds(x);
}

Bounds spectral_norm(const Tensor& x, int64_t restarts, const std::string& field) {
  return bounds(tensorion::spectral_norm(x, restarts, field), x);
}
Bounds spectral_norm_meta(const Tensor& x, int64_t restarts, const std::string& field) {
  spectral_norm(without_elements(x), restarts, field);
  return uninitialized_bounds(x);
}

Tensor conv_norm(const Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                 at::IntArrayRef stride, at::IntArrayRef dilation) {
  return number(tensorion::conv_norm(kernel, input_size, padding, stride, dilation), at::kDouble, kernel);
}
Tensor conv_norm_meta(const Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                      at::IntArrayRef stride, at::IntArrayRef dilation) {
  conv_norm(without_elements(kernel), input_size, padding, stride, dilation);
  return uninitialized_number(at::kDouble, kernel);
}

// ---- The optimizer

void check_options(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  const auto options = given.options();
  given["ranges"].toBool() ? options.check() : options.check_step();
  torch::jit::drop(*stack, given.size());
}

void check_parameters(at::TensorList params, const c10::List<std::string>& names) {
  tensorion::check_parameters(params, names.vec());
}

void step(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  const auto choices = given["choices"].toTensorVector();
  tensorion::step(given["params"].toTensorVector(), given["grads"].toTensorVector(),
                  given["momenta"].toTensorVector(), given.step_options(),
                  {choices, given["decide"].toBool()});
  torch::jit::drop(*stack, given.size());
}

void add_gradients(at::TensorList momenta, at::TensorList grads, double momentum, bool maximize) {
  tensorion::StepOptions options;
  options.momentum = momentum;
  options.maximize = maximize;
  tensorion::add_gradients(momenta, grads, options);
}

void directions(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  auto found = tensorion::directions(given["targets"].toTensorVector(), given.step_options());
  torch::jit::drop(*stack, given.size());
  torch::jit::push(*stack, std::move(found));
}

void directions_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  std::vector<Tensor> found;
  for (const auto& target : given["targets"].toTensorVector()) found.push_back(uninitialized(target));
  torch::jit::drop(*stack, given.size());
  torch::jit::push(*stack, std::move(found));
}

void apply_directions(at::TensorList params, at::TensorList directions, double lr, double weight_decay,
                      const OptionalTensor& lr_tensor) {
  tensorion::StepOptions options;
  options.lr = lr;
  options.weight_decay = weight_decay;
  options.lr_tensor = lr_tensor;
  tensorion::apply_directions(params, directions, options);
}

double solving_cost(at::IntArrayRef shape, const std::string& unfolding) {
  return tensorion::solving_cost(shape, UnfoldingStrategy::parse(unfolding));
}

void adamw_step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList steps, double lr, double beta1, double beta2,
                double eps, double weight_decay, bool maximize, const OptionalTensor& lr_tensor,
                const OptionalTensor& found_inf) {
  tensorion::adamw_step(params, grads, exp_avgs, exp_avg_sqs, steps,
                        {lr, beta1, beta2, eps, weight_decay, maximize, lr_tensor, found_inf});
}

void sgd_step(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers, double lr,
              double momentum, double weight_decay, bool maximize, const OptionalTensor& lr_tensor,
              const OptionalTensor& found_inf) {
  tensorion::sgd_step(params, grads, momentum_buffers,
                      {lr, momentum, weight_decay, maximize, lr_tensor, found_inf});
}

Tensor first_nonfinite_meta(at::TensorList) {
  return at::empty({}, at::TensorOptions(at::kLong).device(at::kMeta));
}

Tensor any_nonfinite_meta(at::TensorList tensors) {
  return at::empty({}, at::TensorOptions(at::kFloat).device(at::kMeta));
}

// The Meta kernel of operators that return nothing.
void no_result_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

// Tags of opaque operators, which tell torch.compile what it may assume.
const std::vector<at::Tag> kCompilable{at::Tag::pt2_compliant_tag};

// Tags of opaque operators that always synchronize with the device. torch 2.7 and 2.8 have no tag for that.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
const auto& kReadsDevice = kCompilable;
#else
const std::vector<at::Tag> kReadsDevice{at::Tag::pt2_compliant_tag, at::Tag::cudagraph_unsafe};
#endif

}  // namespace

TORCH_LIBRARY(tensorion, m) {
  m.def("unfoldings(int[] shape) -> int[][]", tensorion::unfoldings);
  m.def("balanced_unfolding(int[] shape) -> int[]", tensorion::balanced_unfolding);
  m.def("unfold(Tensor x, int[] modes) -> Tensor", unfold);
  m.def("fold(Tensor matrix, int[] modes, SymInt[] shape) -> Tensor", fold);
  m.def(
      "describe_unfolding(int[] shape, str unfolding, str adjust_lr_fn) -> (int[] modes, int rows, int cols, "
      "float scale)",
      describe_unfolding);

  m.def("block_shapes(int[] shape, int[] batch_modes, int[] split_sizes) -> int[][]", block_shapes);
  m.def("fallback_reason(int[] shape, int min_order, int[] batch_modes, int[] split_sizes) -> str",
        fallback_reason);

  m.def("named_coefficients(str name) -> float[]", named_coefficients);
  m.def("polar_express_schedule(int steps) -> float[]", polar_express_schedule);
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

  m.def(check_options_schema(), torch::CppFunction::makeFromBoxedFunction<&check_options>());
  m.def("check_parameters(Tensor[] params, str[] names) -> ()", check_parameters);
  m.def(
      c10::str("step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momenta, Tensor(c!)[] choices, *, ",
               step_arguments(), ", bool decide=True, Tensor? lr_tensor=None, Tensor? found_inf=None) -> ()")
          .c_str(),
      kCompilable);
  m.def("add_gradients_(Tensor(a!)[] momenta, Tensor[] grads, *, float momentum, bool maximize) -> ()",
        kCompilable);
  m.def(c10::str("directions(Tensor[] targets, *, ", step_arguments(), ") -> Tensor[]").c_str(), kCompilable);
  m.def(
      "apply_directions_(Tensor(a!)[] params, Tensor[] directions, *, float lr, float weight_decay, Tensor? "
      "lr_tensor=None) -> ()",
      kCompilable);
  m.def("solving_cost(int[] shape, str unfolding) -> float", solving_cost);
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
  m.def("release_scratch() -> ()", tensorion::release_scratch);
}

TORCH_LIBRARY_IMPL(tensorion, CompositeExplicitAutograd, m) {
  m.impl("polar", polar);
  m.impl("lmo", lmo);
  m.impl("nuclear_norm", nuclear_norm);
  m.impl("dual_norm", dual_norm);
  m.impl("relaxed_norm", relaxed_norm);
  m.impl("spectral_norm", spectral_norm);
  m.impl("conv_norm", conv_norm);
  m.impl("step_", torch::CppFunction::makeFromBoxedFunction<&step>());
  m.impl("add_gradients_", add_gradients);
  m.impl("directions", torch::CppFunction::makeFromBoxedFunction<&directions>());
  m.impl("apply_directions_", apply_directions);
  m.impl("adamw_step_", adamw_step);
  m.impl("sgd_step_", sgd_step);
  m.impl("first_nonfinite", tensorion::first_nonfinite);
  m.impl("any_nonfinite", tensorion::any_nonfinite);
}

TORCH_LIBRARY_IMPL(tensorion, Meta, m) {
  m.impl("polar", polar_meta);
  m.impl("lmo", lmo_meta);
  m.impl("nuclear_norm", nuclear_norm_meta);
  m.impl("dual_norm", dual_norm_meta);
  m.impl("relaxed_norm", relaxed_norm_meta);
  m.impl("spectral_norm", spectral_norm_meta);
  m.impl("conv_norm", conv_norm_meta);
  m.impl("directions", torch::CppFunction::makeFromBoxedFunction<&directions_meta>());
  for (const auto* name : {"step_", "add_gradients_", "apply_directions_", "adamw_step_", "sgd_step_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&no_result_meta>());
  }
  m.impl("first_nonfinite", first_nonfinite_meta);
  m.impl("any_nonfinite", any_nonfinite_meta);
}

TORCH_LIBRARY_IMPL(tensorion, Autograd, m) {
  for (const auto* name :
       {"polar", "lmo", "relaxed_norm", "spectral_norm", "conv_norm", "step_", "add_gradients_", "directions",
        "apply_directions_", "adamw_step_", "sgd_step_", "first_nonfinite", "any_nonfinite"}) {
    m.impl(name, torch::CppFunction::makeFallthrough());
  }
}
