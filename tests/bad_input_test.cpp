// A table of invalid inputs to the C++ library. Each entry has the type of the error and a part of its
// message, which names the invalid argument and its value. No input may be changed. The Python tables are
// based on python/tests/bad_input.py.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "tensorion/lmo.h"
#include "tensorion/norms.h"
#include "tensorion/optimizer.h"
#include "tensorion/polar.h"
#include "tensorion/step.h"
#include "tensorion/unfolding.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::gaussian;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The inputs of the calls. They must not be changed by a call that fails.
struct Inputs {
  at::Tensor x = gaussian({3, 4, 5}, 1);
  at::Tensor matrix = gaussian({4, 6}, 2);
  at::Tensor kernel = gaussian({2, 3, 3, 3}, 3);
  at::Tensor param = gaussian({3, 4, 5}, 4).requires_grad_();
  at::Tensor bias = gaussian({5}, 5).requires_grad_();
  at::Tensor momentum = gaussian({3, 4, 5}, 6);

  std::vector<at::Tensor> copies() const {
    std::vector<at::Tensor> all;
    for (const auto& tensor : {x, matrix, kernel, param, bias, momentum})
      all.push_back(tensor.detach().clone());
    return all;
  }
  Tensorion optimizer(const TensorionOptions& options = {}) const {
    return Tensorion({param, bias}, options);
  }
};

enum class Kind { kValue, kType };

struct Case {
  const char* name;
  std::function<void(Inputs&)> call;
  Kind kind;
  const char* message;  // a part of it
};

// Calls `step` for the valid parameter with these gradients, momenta and options.
void step_with(Inputs& inputs, const std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& momenta,
               const StepOptions& options = {}) {
  step({inputs.param.detach()}, grads, momenta, options);
}

// Performs a step of the optimizer with this gradient.
void optimizer_step(Inputs& inputs, const at::Tensor& gradient) {
  auto optimizer = inputs.optimizer();
  inputs.param.mutable_grad() = gradient;
  inputs.bias.mutable_grad() = at::ones({5});
  try {
    optimizer.step();
  } catch (...) {
    EXPECT_TRUE(optimizer.state().empty());
    throw;
  }
}

// Returns a copy of x in which one element is replaced.
at::Tensor with(const at::Tensor& x, double value) {
  auto out = x.detach().clone();
  out.view(-1)[2] = value;
  return out;
}

const Case kCases[] = {
    {"unfold: a mode out of range", [](Inputs& in) { unfold(in.x, {3}); }, Kind::kValue,
     "mode must be in [0, 3), got 3 for shape [3, 4, 5]"},
    {"unfold: a sparse tensor", [](Inputs& in) { unfold(in.x.to_sparse(), {0}); }, Kind::kValue,
     "[tensorion.unfold] expected a dense tensor, got Sparse"},
    {"unfold: another shape", [](Inputs& in) { Unfolding({3, 4, 6}, {0}).unfold(in.x); }, Kind::kValue,
     "expected a tensor of shape [3, 4, 6], got [3, 4, 5]"},
    {"fold: 2^64 elements", [](Inputs& in) { fold(in.matrix, {0}, {4, int64_t{1} << 62}); }, Kind::kValue,
     "a tensor must have fewer than 2^63 elements, got shape [4, 4611686018427387904]"},
    {"fold: a sparse matrix", [](Inputs& in) { fold(in.matrix.to_sparse(), {0}, {4, 6}); }, Kind::kValue,
     "[tensorion.fold] expected a dense matrix, got Sparse"},
    {"unfoldings: a negative size", [](Inputs&) { unfoldings({2, -3, 4}); }, Kind::kValue,
     "sizes must not be negative, got shape [2, -3, 4]"},
    {"unfoldings: 2^80 elements", [](Inputs&) { unfoldings({int64_t{1} << 40, int64_t{1} << 40}); },
     Kind::kValue, "fewer than 2^63 elements, got shape [1099511627776, 1099511627776]"},
    {"balanced_unfolding: an empty tensor with huge sizes",
     [](Inputs&) { balanced_unfolding({0, int64_t{1} << 40, int64_t{1} << 40}); }, Kind::kValue,
     "fewer than 2^63 elements, got shape [0, 1099511627776, 1099511627776]"},
    {"strategy: a word", [](Inputs&) { UnfoldingStrategy::parse("best"); }, Kind::kValue, "got 'best'"},
    {"strategy: a bracket", [](Inputs&) { UnfoldingStrategy::parse("("); }, Kind::kValue, "got '('"},
    {"strategy: only a comma", [](Inputs&) { UnfoldingStrategy::parse("(,)"); }, Kind::kValue, "got '(,)'"},
    {"strategy: two commas", [](Inputs&) { UnfoldingStrategy::parse("(0,,1)"); }, Kind::kValue,
     "got '(0,,1)'"},
    {"strategy: a fraction", [](Inputs&) { UnfoldingStrategy::parse("(0.5)"); }, Kind::kValue, "got '(0.5)'"},
    {"strategy: 70 bits", [](Inputs&) { UnfoldingStrategy::parse("(1180591620717411303424)"); }, Kind::kValue,
     "got '(1180591620717411303424)'"},
    {"polar: a sparse matrix", [](Inputs& in) { polar(in.matrix.to_sparse()); }, Kind::kValue,
     "[tensorion.polar] expected a dense tensor, got Sparse"},
    {"polar: float8", [](Inputs& in) { polar(in.matrix.to(at::kFloat8_e4m3fn)); }, Kind::kType,
     "got Float8_e4m3fn"},
    {"polar: a NaN", [](Inputs& in) { polar(with(in.matrix, kNan)); }, Kind::kValue, "one that contains nan"},
    {"polar: an infinity", [](Inputs& in) { polar(with(in.matrix, kInfinite)); }, Kind::kValue,
     "one that contains inf"},
    {"polar: a billion steps",
     [](Inputs& in) { polar(in.matrix, {.method = "newton_schulz", .ns_steps = 1'000'000'000}); },
     Kind::kValue, "ns_steps must be at most 1000, got 1000000000"},
    {"polar: no coefficients", [](Inputs& in) { polar(in.matrix, {.ns_coefficients = Coefficients{}}); },
     Kind::kValue, "at least one row (a, b, c), got none"},
    {"polar: coefficients of NaN",
     [](Inputs& in) { polar(in.matrix, {.ns_coefficients = Coefficients{{1, kNan, 0}}}); }, Kind::kValue,
     "ns_coefficients must be finite, got nan"},
    {"lmo: a sparse tensor", [](Inputs& in) { lmo(in.x.to_sparse()); }, Kind::kValue,
     "[tensorion.lmo] expected a dense tensor, got Sparse"},
    {"lmo: float8", [](Inputs& in) { lmo(in.x.to(at::kFloat8_e5m2)); }, Kind::kType, "got Float8_e5m2"},
    {"nuclear_norm: a sparse tensor", [](Inputs& in) { tensorion::nuclear_norm(in.x.to_sparse(), {0}); },
     Kind::kValue, "[tensorion.nuclear_norm] expected a dense tensor, got Sparse"},
    {"spectral_norm: 2^62 starts", [](Inputs& in) { spectral_norm(in.x, int64_t{1} << 62); }, Kind::kValue,
     "restarts must be at most 1000000, got 4611686018427387904"},
    {"conv_norm: a negative size", [](Inputs& in) { conv_norm(in.kernel, {4, -4}); }, Kind::kValue,
     "input sizes must be at least 1, got [4, -4]"},
    {"step: fewer gradients", [](Inputs& in) { step_with(in, {}, {in.momentum}); }, Kind::kValue,
     "got 1 parameters, 0 gradients and 1 momenta"},
    {"step: a gradient of another shape", [](Inputs& in) { step_with(in, {in.matrix}, {in.momentum}); },
     Kind::kValue, "expected a gradient of shape [3, 4, 5] at index 0, got [4, 6]"},
    {"step: a sparse momentum", [](Inputs& in) { step_with(in, {in.x}, {in.momentum.to_sparse()}); },
     Kind::kValue, "expected a dense momentum at index 0, got Sparse"},
    {"step: integers", [](Inputs& in) { step_with(in, {in.x.to(at::kLong)}, {in.momentum}); }, Kind::kType,
     "expected a real floating-point gradient at index 0, got Long"},
    {"step: an unfolding that does not fit",
     [](Inputs& in) { step_with(in, {in.x}, {in.momentum}, {.unfolding = Modes{3}}); }, Kind::kValue,
     "mode must be in [0, 3), got 3"},
    {"step: lr is infinite", [](Inputs& in) { step_with(in, {in.x}, {in.momentum}, {.lr = kInfinite}); },
     Kind::kValue, "lr must be finite, got inf"},
    {"optimizer: lr is NaN", [](Inputs& in) { in.optimizer(TensorionOptions(kNan)); }, Kind::kValue,
     "lr must be finite and not negative, got nan"},
    {"optimizer: min_order is 0", [](Inputs& in) { in.optimizer(TensorionOptions().min_order(0)); },
     Kind::kValue, "min_order must be at least 1, got 0"},
    {"optimizer: no fallback", [](Inputs& in) { in.optimizer(TensorionOptions().fallback(std::nullopt)); },
     Kind::kValue, "needs a fallback (order < 3), got none"},
    {"optimizer: an unknown policy", [](Inputs& in) { in.optimizer(TensorionOptions().nonfinite("warn")); },
     Kind::kValue, "nonfinite must be 'error', 'skip' or 'ignore', got 'warn'"},
    {"optimizer: float8", [](Inputs& in) { Tensorion({in.x.to(at::kFloat8_e4m3fn)}); }, Kind::kType,
     "got Float8_e4m3fn for parameter 0"},
    {"optimizer: a tensor twice", [](Inputs& in) { Tensorion({in.x, in.x.view({12, 5})}); }, Kind::kValue,
     "share memory"},
    {"optimizer: a gradient with a NaN", [](Inputs& in) { optimizer_step(in, with(in.x, kNan)); },
     Kind::kValue, "is not finite"},
    {"optimizer: a gradient with an infinity", [](Inputs& in) { optimizer_step(in, with(in.x, kInfinite)); },
     Kind::kValue, "is not finite"},
    {"optimizer: a sparse gradient", [](Inputs& in) { optimizer_step(in, in.x.to_sparse()); }, Kind::kValue,
     "expected a dense gradient, got Sparse"},
};

TEST(BadInput, ThrowsAndChangesNothing) {
  Inputs inputs;
  const auto before = inputs.copies();
  for (const auto& entry : kCases) {
    SCOPED_TRACE(entry.name);
    if (entry.kind == Kind::kValue) {
      testing::expect_error<c10::ValueError>([&] { entry.call(inputs); }, entry.message);
    } else {
      testing::expect_error<c10::TypeError>([&] { entry.call(inputs); }, entry.message);
    }
    const auto after = inputs.copies();
    for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i])) << "tensor " << i;
  }
}

TEST(BadInput, ParsesAMillionModes) {
  // Regression: modes were matched by a regular expression, which recursed for every mode.
  std::string text = "(0";
  for (int i = 0; i < 1'000'000; ++i) text += ", 0";
  EXPECT_EQ(UnfoldingStrategy::parse(text + ")").str(), text + ")");
  EXPECT_EQ(UnfoldingStrategy::parse("( 0 ,2, )").str(), "(0, 2)");
  EXPECT_EQ(UnfoldingStrategy::parse("()").str(), "()");
}

}  // namespace
}  // namespace tensorion
