#include "tensorion/step.h"

#include <c10/core/InferenceMode.h>

#include "tensorion/fallback.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::gaussian;
using testing::polar_rounding;
using testing::rounding;
using testing::ThreadGuard;

// Algorithm 1 of the paper for one tensor, in double precision and with an exact SVD.
struct Reference {
  at::Tensor w, m;
  double beta, lr, decay;
  bool nesterov = false;

  void step(const at::Tensor& grad, const Modes& modes) {
    m = grad.to(at::kDouble) + beta * m;
    const auto target = nesterov ? grad.to(at::kDouble) + beta * m : m;
    const auto matrix = unfold(target, modes);
    const auto [u, s, vh] = at::linalg_svd(matrix, false);
    const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.size(0), matrix.size(1))));
    w = (1 - decay * lr) * w - lr * scale * fold(at::matmul(u, vh), modes, w.sizes());
  }
};

Modes largest_nuclear_norm(const at::Tensor& m) {
  Modes best;
  double best_norm = -1;
  for (const auto& modes : unfoldings(m.sizes())) {
    const double norm = at::linalg_svdvals(unfold(m, modes)).sum().item<double>();
    if (norm > best_norm) {
      best_norm = norm;
      best = modes;
    }
  }
  return best;
}

// Returns a tolerance for the rounding error of a parameter after one step with this momentum.
double step_rounding(const at::Tensor& momentum, const StepOptions& options) {
  const auto modes = options.unfolding.is_online() ? lmo(momentum).modes
                                                   : options.unfolding.choose(momentum.sizes()).modes();
  const Unfolding unfolding(momentum.sizes(), modes);
  return rounding(at::kFloat, 3) + options.lr * adjusted_scale(unfolding, options.adjust_lr_fn) *
                                       polar_rounding(unfolding.unfold(momentum), options.polar.method);
}

TEST(Step, MatchesAlgorithmOne) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 5, 6}, {4, 3, 2, 3}, {2, 3, 2, 2, 3}}) {
    auto strategies = std::vector<UnfoldingStrategy>{"balanced", "online"};
    for (const auto& modes : unfoldings(shape)) strategies.emplace_back(modes);
    for (const auto& strategy : strategies) {
      for (const bool nesterov : {false, true}) {
        SCOPED_TRACE(c10::str(at::IntArrayRef(shape), " ", strategy.str(), nesterov ? " nesterov" : ""));
        StepOptions options;
        options.lr = 0.05;
        options.weight_decay = 0.3;
        options.momentum = 0.9;
        options.nesterov = nesterov;
        options.unfolding = strategy;
        options.polar.method = "svd";
        auto w = gaussian(shape, 1, at::kDouble), m = at::zeros_like(w);
        Reference reference{w.clone(), m.clone(), 0.9, 0.05, 0.3, nesterov};
        double condition = 1;
        for (int k = 0; k < 50; ++k) {
          const auto grad = gaussian(shape, 100 + k, at::kDouble);
          auto target = grad + 0.9 * reference.m;
          if (nesterov) target = grad + 0.9 * target;
          const auto modes =
              strategy.is_online() ? largest_nuclear_norm(target) : strategy.choose(shape).modes();
          condition = std::max(condition, testing::condition_number(unfold(target, modes)));
          reference.step(grad, modes);
          step({w}, {grad}, {m}, options);
        }
        expect_close(w, reference.w, rounding(at::kDouble, w.numel(), 50) * condition);
        expect_close(m, reference.m, rounding(at::kDouble, 2, 50));
      }
    }
  }
}

// The elementwise parts are applied to shards, and directions to whole tensors.
TEST(Step, PartsMatchAStep) {
  for (const UnfoldingStrategy& strategy :
       {UnfoldingStrategy("balanced"), UnfoldingStrategy("online"), UnfoldingStrategy(Modes{0})}) {
    for (const bool nesterov : {false, true}) {
      SCOPED_TRACE(strategy.str() + (nesterov ? " nesterov" : ""));
      StepOptions options;
      options.lr = 0.05;
      options.weight_decay = 0.3;
      options.momentum = 0.9;
      options.nesterov = nesterov;
      options.maximize = nesterov;
      options.unfolding = strategy;
      std::vector<at::Tensor> w, g, m, w1, m1, target;
      for (int64_t i = 0; i < 3; ++i) {
        w.push_back(gaussian({5 + 3 * i, 4, 3, 3}, i));
        g.push_back(gaussian(w[i].sizes(), 50 + i));
        m.push_back(gaussian(w[i].sizes(), 90 + i));
        w1.push_back(w[i].clone());
        m1.push_back(m[i].clone());
      }
      step(w, g, m, options);
      for (size_t i = 0; i < w.size(); ++i) {
        add_gradients({m1[i].narrow(0, 0, 2)}, {g[i].narrow(0, 0, 2)}, options);
        const auto rest = m1[i].size(0) - 2;
        add_gradients({m1[i].narrow(0, 2, rest)}, {g[i].narrow(0, 2, rest)}, options);
        target.push_back(m1[i]);
        if (nesterov) {
          target[i] = m1[i].clone();
          add_gradients({target[i]}, {g[i]}, options);
        }
        EXPECT_TRUE(at::equal(m1[i], m[i])) << i;
      }
      const auto d = directions(target, options);
      for (size_t i = 0; i < w.size(); ++i) {
        apply_directions({w1[i].select(0, 0)}, {d[i].select(0, 0)}, options);
        const auto rest = w1[i].size(0) - 1;
        auto on_device = options;
        on_device.lr = 99;
        on_device.lr_tensor = at::full({}, 0.05);
        apply_directions({w1[i].narrow(0, 1, rest)}, {d[i].narrow(0, 1, rest)}, on_device);
        expect_close(w1[i], w[i], step_rounding(target[i], options), std::to_string(i));
      }
    }
  }
  StepOptions options;
  auto bad = gaussian({4, 5, 6}, 1);
  bad[0][0][0] = NAN;
  const auto d = directions({gaussian({4, 5, 6}, 2), bad}, options);
  EXPECT_EQ(first_nonfinite({d[0]}).item<int64_t>(), -1);
  EXPECT_TRUE(d[1].isnan().all().item<bool>());
  expect_error<c10::ValueError>([&] { add_gradients({bad}, {bad[0]}, options); },
                                "expected a gradient of shape [4, 5, 6] at index 0, got [5, 6]");
  expect_error<c10::ValueError>([&] { apply_directions({bad}, {}, options); },
                                "got 0 directions and 1 parameters");
  const auto other = gaussian({4, 5}, 3);
  expect_error<c10::ValueError>([&] { directions_out({other}, {bad}, options); },
                                "expected a result of shape [4, 5, 6] at index 0, got [4, 5]");
  expect_error<c10::ValueError>([&] { directions_out({}, {bad}, options); }, "got 0 results and 1 momenta");
  expect_error<c10::TypeError>([&] { directions({bad.to(at::kLong)}, options); },
                               "expected real floating-point momenta, got Long at index 0");
}

TEST(Step, CostDependsOnTheUnfolding) {
  EXPECT_EQ(solving_cost({64, 32, 3, 3}, "balanced"), 96.0 * 96 * (192 + 96));
  EXPECT_EQ(solving_cost({64, 32, 3, 3}, "online"), 96.0 * 96 * (192 + 96));
  EXPECT_EQ(solving_cost({64, 32, 3, 3}, Modes{0}), 64.0 * 64 * (288 + 64));
}

TEST(Step, ScaleDependsOnTheUnfoldedMatrix) {
  const Unfolding flat({64, 32, 3, 3}, {0}), balanced({64, 32, 3, 3}, {0, 2});
  EXPECT_DOUBLE_EQ(adjusted_scale(flat, "match_rms_adamw"), 0.2 * std::sqrt(288.0));
  EXPECT_DOUBLE_EQ(adjusted_scale(balanced, "match_rms_adamw"), 0.2 * std::sqrt(192.0));
  EXPECT_DOUBLE_EQ(adjusted_scale(flat, "original"), 1.0);
  EXPECT_DOUBLE_EQ(adjusted_scale(balanced, "original"), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(adjusted_scale(balanced, "conv_radius"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(adjusted_scale(Unfolding({8, 4}, {0}), "conv_radius"), 1.0);
}

class StepWithThreads : public ::testing::TestWithParam<int> {
 protected:
  const ThreadGuard threads{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Step, StepWithThreads, ::testing::Values(1, 2, 4, 8));

TEST_P(StepWithThreads, ListMatchesSingleTensors) {
  for (const UnfoldingStrategy& strategy : {UnfoldingStrategy("balanced"), UnfoldingStrategy("online")}) {
    for (const auto* name : {"halley", "newton_schulz", "svd"}) {
      StepOptions options;
      options.unfolding = strategy;
      options.polar.method = name;
      std::vector<at::Tensor> w, g, m, w1, m1;
      for (int64_t i = 0; i < 9; ++i) {
        w.push_back(gaussian({3 + 12 * i, 5 + 7 * i, 3, 3}, i));
        g.push_back(gaussian(w[i].sizes(), 50 + i));
        m.push_back(gaussian(w[i].sizes(), 90 + i));
        w1.push_back(w[i].clone());
        m1.push_back(m[i].clone());
      }
      step(w, g, m, options);
      for (size_t i = 0; i < w.size(); ++i) {
        step({w1[i]}, {g[i]}, {m1[i]}, options);
        expect_close(w[i], w1[i], step_rounding(m[i], options), c10::str(strategy.str(), " ", name, " ", i));
        EXPECT_TRUE(at::equal(m[i], m1[i]));
      }
    }
  }
}

// Inference mode is thread-local state of the caller, which the other threads must inherit.
TEST_P(StepWithThreads, WorksInInferenceMode) {
  const c10::InferenceMode inference;
  std::vector<at::Tensor> w, g, m;
  for (int64_t i = 0; i < 6; ++i) {
    w.push_back(gaussian({60, 40, 3, 3}, i));
    g.push_back(gaussian(w[i].sizes(), 50 + i));
    m.push_back(at::zeros_like(w[i]));
  }
  step(w, g, m, {});
  step({w[0]}, {g[0]}, {m[0]}, {});
  for (const auto& tensor : w) EXPECT_EQ(first_nonfinite({tensor}).item<int64_t>(), -1);
}

TEST(Step, UpdateDoesNotDependOnLayout) {
  StepOptions options;
  const auto w = gaussian({8, 6, 3, 3}, 1), g = gaussian({8, 6, 3, 3}, 2);
  const double tolerance = step_rounding(g, options);
  auto plain_w = w.clone(), plain_m = at::zeros_like(w);
  step({plain_w}, {g}, {plain_m}, options);
  const auto channels_last = [](const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
  auto last_w = channels_last(w.clone()), last_m = at::zeros_like(last_w);
  EXPECT_EQ(last_m.strides(), last_w.strides());
  step({last_w}, {channels_last(g)}, {last_m}, options);
  expect_close(last_w, plain_w, tolerance, "channels last");
  EXPECT_EQ(last_w.strides(), channels_last(w).strides());
  auto mixed_w = w.clone(), mixed_m = at::zeros_like(w);
  step({mixed_w}, {channels_last(g)}, {mixed_m}, options);
  expect_close(mixed_w, plain_w, tolerance, "gradient in another layout");
  auto wide = at::zeros({8, 6, 3, 6});
  auto sliced = wide.slice(3, 0, 6, 2);
  sliced.copy_(w);
  auto sliced_m = at::zeros_like(w);
  step({sliced}, {g}, {sliced_m}, options);
  expect_close(sliced, plain_w, tolerance, "parameter that is a slice");
  EXPECT_EQ(wide.slice(3, 1, 6, 2).abs().max().item<float>(), 0) << "written outside the slice";
}

TEST(Step, TensorLearningRateAndFoundInf) {
  StepOptions options;
  options.lr = 0.01;
  const auto w = gaussian({4, 5, 6}, 1), g = gaussian({4, 5, 6}, 2), m = gaussian({4, 5, 6}, 3);
  auto expected_w = w.clone(), expected_m = m.clone();
  step({expected_w}, {g}, {expected_m}, options);
  auto tensor_options = options;
  tensor_options.lr = 99;
  tensor_options.lr_tensor = at::full({}, 0.01);
  tensor_options.found_inf = at::zeros({});
  auto tensor_w = w.clone(), tensor_m = m.clone();
  step({tensor_w}, {g}, {tensor_m}, tensor_options);
  expect_close(tensor_w, expected_w, step_rounding(expected_m, options));
  expect_close(tensor_m, expected_m, rounding(at::kFloat, 2));
  tensor_options.found_inf = at::ones({});
  auto kept_w = w.clone(), kept_m = m.clone();
  step({kept_w}, {at::full_like(g, NAN)}, {kept_m}, tensor_options);
  EXPECT_TRUE(at::equal(kept_w, w));
  EXPECT_TRUE(at::equal(kept_m, m));
}

TEST(Step, MomentumIsClampedForHugeGradients) {
  StepOptions options;
  auto w = gaussian({3, 4, 5}, 1), m = at::zeros_like(w);
  const auto g = gaussian({3, 4, 5}, 2).sign() * 3e38;
  for (int k = 0; k < 5; ++k) step({w}, {g}, {m}, options);
  EXPECT_TRUE(at::isfinite(w).all().item<bool>());
  EXPECT_TRUE(at::isfinite(m).all().item<bool>());
}

TEST(Step, FindsNonfiniteTensors) {
  const auto good = gaussian({3, 4}, 1);
  auto bad = good.clone();
  bad[1][2] = INFINITY;
  EXPECT_EQ(first_nonfinite({good, at::zeros({0}), good}).item<int64_t>(), -1);
  EXPECT_EQ(first_nonfinite({good, bad}).item<int64_t>(), 1);
  bad[1][2] = NAN;
  EXPECT_EQ(first_nonfinite({bad, good}).item<int64_t>(), 0);
  EXPECT_EQ(any_nonfinite({good, bad}).item<float>(), 1);
  EXPECT_EQ(any_nonfinite({good, at::zeros({0})}).item<float>(), 0);
  EXPECT_EQ(any_nonfinite({at::full({2}, 3e38)}).item<float>(), 0) << "large is not infinite";
}

// Regression: the fused kernels ignore strides, so a sliced parameter was written as if it were dense.
TEST(Fallback, SupportsAnyStrides) {
  const auto check = [](const std::function<void(const at::Tensor&, const at::Tensor&)>& run) {
    const auto w = gaussian({6, 5}, 1), g = gaussian({6, 5}, 2);
    auto plain = w.clone();
    run(plain, g);
    EXPECT_GT((plain - w).abs().max().item<double>(), 1e-4);
    auto wide = at::zeros({6, 10});
    auto sliced = wide.slice(1, 0, 10, 2);
    sliced.copy_(w);
    run(sliced, g);
    expect_close(sliced, plain, rounding(at::kFloat, 2, 3), "slice");
    EXPECT_EQ(wide.slice(1, 1, 10, 2).abs().max().item<float>(), 0);
    auto transposed = w.t().contiguous().t();
    run(transposed, g);
    expect_close(transposed, plain, rounding(at::kFloat, 2, 3), "transposed");
    auto other = w.clone();
    run(other, g.t().contiguous().t());
    expect_close(other, plain, rounding(at::kFloat, 2, 3), "gradient transposed");
  };
  check([](const at::Tensor& w, const at::Tensor& g) {
    auto m = at::zeros_like(w), v = at::zeros_like(w), count = at::zeros({});
    for (int k = 0; k < 3; ++k) adamw_step({w}, {g}, {m}, {v}, {count}, {});
    EXPECT_EQ(count.item<float>(), 3);
  });
  check([](const at::Tensor& w, const at::Tensor& g) {
    auto m = at::zeros_like(w);
    for (int k = 0; k < 3; ++k) sgd_step({w}, {g}, {m}, {});
  });
}

TEST(Step, BadInputThrowsAndChangesNothing) {
  const auto w = gaussian({4, 5, 6}, 1), g = gaussian({4, 5, 6}, 2);
  auto kept = w.clone();
  auto m = at::zeros_like(w);
  const auto expect_refused = [&](const std::function<void(StepOptions&)>& change, const std::string& part) {
    StepOptions options;
    change(options);
    expect_error<c10::ValueError>([&] { step({kept}, {g}, {m}, options); }, part);
  };
  expect_refused([](auto& o) { o.lr = NAN; }, "lr must be finite, got nan");
  expect_refused([](auto& o) { o.momentum = INFINITY; }, "momentum must be finite, got inf");
  expect_refused([](auto& o) { o.weight_decay = NAN; }, "weight_decay must be finite, got nan");
  expect_refused([](auto& o) { o.adjust_lr_fn = "rms"; }, "got 'rms'");
  expect_refused([](auto& o) { o.polar.method = "qr"; }, "got 'qr'");
  expect_refused([](auto& o) { o.unfolding = Modes{7}; }, "mode must be in [0, 3), got 7");
  expect_error<c10::ValueError>([&] { step({kept}, {g[0]}, {m}, {}); },
                                "expected a gradient of shape [4, 5, 6] at index 0, got [5, 6]");
  expect_error<c10::ValueError>([&] { step({kept}, {}, {m}, {}); }, "got 1 parameters, 0 gradients");
  expect_error<c10::TypeError>([&] { step({w.to(at::kLong)}, {g}, {m}, {}); }, "got Long at index 0");
  EXPECT_TRUE(at::equal(kept, w));
  EXPECT_EQ(m.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace tensorion
