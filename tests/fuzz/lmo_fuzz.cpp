// The bytes are a shape, a set of modes, and values with any bit pattern. unfold and fold must be inverses,
// the result of the oracle must lie in the unit ball and within its bounds, and a step must change all
// parameters or none.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensorion/lmo.h"
#include "tensorion/norms.h"
#include "tensorion/optimizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tensorion;

constexpr int64_t kMaxElements = 1024;
constexpr double kSlack = 0.02;     // tolerance for the unit ball, for "halley" in single precision
constexpr double kRounding = 1e-5;  // tolerance for the bounds

// Reads the bytes one by one, and zeros after the end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  int64_t next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  int64_t number() {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | static_cast<uint64_t>(next());
    return static_cast<int64_t>(bits);
  }
  // Fills a tensor with the remaining bytes, which are repeated as needed.
  void fill(const at::Tensor& x) const {
    auto* out = static_cast<uint8_t*>(x.mutable_data_ptr());
    for (size_t i = 0; i < x.nbytes(); ++i) out[i] = size_ == 0 ? 0 : data_[i % size_];
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto left = a.contiguous(), right = b.contiguous();
  return left.sizes() == right.sizes() && left.dtype() == right.dtype() &&
         (left.numel() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

bool is_finite(const at::Tensor& x) { return at::isfinite(x).all().item<bool>(); }

std::vector<double> singular_values(const at::Tensor& matrix) {
  const auto values = at::linalg_svdvals(matrix.to(at::kDouble)).contiguous();
  const auto* begin = values.const_data_ptr<double>();
  return {begin, begin + values.numel()};
}

// Returns the optimum of the oracle, which is the largest nuclear norm of an unfolding, divided by `scale`.
double optimum(const at::Tensor& m, double scale) {
  const auto scaled = m.to(at::kDouble) / scale;
  double best = scaled.norm().item<double>();
  for (const auto& modes : unfoldings(m.sizes())) {
    double sum = 0;
    for (const double value : singular_values(unfold(scaled, modes))) sum += value;
    best = std::max(best, sum);
  }
  return best;
}

// Uses any numbers as sizes and modes, without allocating a tensor.
void check_shapes(Bytes& bytes) {
  std::vector<int64_t> shape(bytes.next() % 9);
  for (auto& size : shape) size = bytes.next() % 2 ? bytes.next() % 5 : bytes.number();
  Modes modes(bytes.next() % 5);
  for (auto& mode : modes) mode = bytes.next() % 8 == 0 ? bytes.number() : bytes.next() % 8;
  fuzz::succeeds<c10::ValueError>("[tensorion.unfold]", [&] {
    const Unfolding unfolding(shape, modes);
    fuzz::expect(unfolding.rows() >= 0 && unfolding.cols() >= 0, "negative sizes");
    unfolding.canonical();
  });
  fuzz::succeeds<c10::ValueError>("[tensorion.", [&] { balanced_unfolding(shape); });
}

void check_fold(const at::Tensor& x, const Modes& modes) {
  fuzz::succeeds<c10::ValueError>("[tensorion.unfold]", [&] {
    const auto matrix = unfold(x, modes);
    fuzz::expect(same_bits(fold(matrix, modes, x.sizes()), x), "fold(unfold(x)) is not x");
  });
}

void check_lmo(const at::Tensor& m, const UnfoldingStrategy& strategy, const std::string& method) {
  LmoResult result;
  const bool solved =
      fuzz::succeeds<c10::Error>("[tensorion.", [&] { result = lmo(m, strategy, {.method = method}); });
  if (!solved) return;
  fuzz::expect(is_finite(m), "no error on values that are not finite");
  fuzz::expect(result.x.sizes() == m.sizes() && result.x.dtype() == m.dtype() && is_finite(result.x),
               "the direction is not finite");
  if (m.numel() == 0) return;
  const auto eps = m.scalar_type() == at::kBFloat16 ? 1.0 / 128
                   : m.scalar_type() == at::kHalf   ? 1.0 / 1024
                                                    : 0;
  const auto matrix = unfold(result.x, result.modes);
  const double norm = singular_values(matrix)[0];
  const double side = std::sqrt(static_cast<double>(std::min(matrix.size(0), matrix.size(1))));
  // The spectral norm of any unfolding bounds the relaxed norm.
  fuzz::expect(norm <= (method == "newton_schulz" ? 1.25 : 1 + kSlack) + side * eps,
               "outside of the unit ball: " + std::to_string(norm));
  const double scale = m.abs().max().item<double>();
  if (scale == 0) return fuzz::expect(norm == 0 && result.upper == 0, "zero does not give zero");
  const double best = optimum(m, scale), value = result.value / scale, upper = result.upper / scale;
  if (!std::isnormal(best * scale)) return;  // outside the range of double, so the bounds may be too
  fuzz::expect(value <= best * (1 + kRounding) && upper >= best * (1 - kRounding),
               "the certificate [" + std::to_string(value) + ", " + std::to_string(upper) +
                   "] does not hold " + std::to_string(best));
}

void check_norms(const at::Tensor& x) {
  fuzz::succeeds<c10::Error>("[tensorion.", [&] {
    const auto [lower, upper] = relaxed_norm(x, 0.2);
    fuzz::expect(is_finite(x), "no error on values that are not finite");
    fuzz::expect(lower >= 0 && lower <= upper && std::isfinite(upper), "bounds of the relaxed norm");
  });
}

void check_step(const at::Tensor& gradient, const UnfoldingStrategy& strategy) {
  const auto other = at::ones({3, 2, 2}, gradient.options());
  std::vector<at::Tensor> params{at::ones({3, 2, 2}, gradient.options()), at::ones_like(gradient)};
  params[0].mutable_grad() = other.clone();
  params[1].mutable_grad() = gradient;
  const std::vector<at::Tensor> before{params[0].clone(), params[1].clone()};
  const bool stepped = fuzz::succeeds<c10::Error>("[tensorion.", [&] {
    Tensorion optimizer(params, TensorionOptions(1e-3).unfolding(strategy));
    optimizer.step();
  });
  for (size_t i = 0; i < params.size(); ++i) {
    if (stepped) {
      fuzz::expect(is_finite(params[i]), "a parameter is not finite");
    } else {
      fuzz::expect(same_bits(params[i], before[i]), "a parameter changed although the step failed");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  at::set_num_threads(1);
  Bytes bytes(data, size);
  const int64_t task = bytes.next();
  if (task % 8 == 0) {
    check_shapes(bytes);
    return 0;
  }
  constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt};
  const auto dtype = kDtypes[bytes.next() % 5];
  std::vector<int64_t> shape(bytes.next() % 7);
  int64_t elements = 1;
  for (auto& side : shape) {
    side = bytes.next() % 9;
    if (elements * side > kMaxElements) side = 1;
    elements *= side;
  }
  Modes modes(bytes.next() % 4);
  for (auto& mode : modes) mode = bytes.next() % 10 - 1;
  auto x = at::empty(shape, at::TensorOptions().dtype(dtype));
  // In three of four cases, remove NaN and infinity, which most bit patterns contain.
  const bool tame = bytes.next() % 4 != 0;
  bytes.fill(x);
  if (tame && at::isFloatingType(dtype)) x = x.nan_to_num(1, 2, -2);
  if (task & 64 && x.dim() >= 2) x = x.transpose(0, x.dim() - 1);
  const UnfoldingStrategy strategies[] = {"balanced", "online", modes};
  const auto& strategy = strategies[task / 8 % 3];
  constexpr const char* kMethods[] = {"auto", "svd", "newton_schulz"};
  check_fold(x, modes);
  switch (task % 8) {
    case 1:
    case 2:
    case 3: check_lmo(x, strategy, kMethods[task / 24 % 3]); break;
    case 4:
      if (x.numel() <= 64 && x.dim() <= 4) check_norms(x);
      break;
    default: check_step(x, strategy);
  }
  return 0;
}
