// python/tests/test_cpp_schedules.py compares the values with those of the schedulers of PyTorch.
#include "tensorion/schedule.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <sstream>

#include "tensorion/optimizer.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_error;
using testing::gaussian;

const TensorionOptions& options_of(const torch::optim::Optimizer& optimizer, size_t group) {
  return static_cast<const TensorionOptions&>(optimizer.param_groups()[group].options());
}

TEST(Schedule, ScalesTheLearningRateOfEachGroup) {
  Tensorion optimizer({gaussian({2, 3, 4}, 1), gaussian({5}, 2)}, TensorionOptions(0.4).fallback_lr(0.01));
  Scheduler scheduler(optimizer, onecycle(100));
  EXPECT_NEAR(options_of(optimizer, 0).lr(), 0.4 / 25, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 1).lr(), 0.01 / 25, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 0).momentum(), 0.95, 1e-12);
  scheduler.prepare(28);
  scheduler.step();
  EXPECT_EQ(scheduler.current_step(), 29);
  EXPECT_NEAR(options_of(optimizer, 0).lr(), 0.4, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 1).lr(), 0.01, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 0).momentum(), 0.85, 1e-12);
  // For AdamW, only beta1 is set: neither beta2 nor the option momentum, which AdamW does not use.
  EXPECT_EQ(options_of(optimizer, 1).fallback_betas(), TensorionOptions::Betas(0.85, 0.999));
  EXPECT_NEAR(options_of(optimizer, 1).momentum(), 0.95, 1e-12);
  scheduler.prepare(99);
  EXPECT_NEAR(options_of(optimizer, 1).lr(), 0.01 / 250000, 1e-20);
}

// Returns the options of an optimizer after a scheduler has prepared step 29 of 100.
template <typename Optimizer, typename Options>
const Options& scheduled(const Options& given) {
  static Optimizer* optimizer = nullptr;
  delete optimizer;
  optimizer = new Optimizer(std::vector<at::Tensor>{gaussian({3}, 1)}, given);
  Scheduler(*optimizer, onecycle(100)).prepare(29);
  return static_cast<const Options&>(optimizer->param_groups()[0].options());
}

TEST(Schedule, SupportsOptimizersOfTorch) {
  using namespace torch::optim;
  EXPECT_NEAR(scheduled<SGD>(SGDOptions(0.5).momentum(0.9)).momentum(), 0.85, 1e-12);
  EXPECT_NEAR(scheduled<SGD>(SGDOptions(0.5).momentum(0.9)).lr(), 0.5, 1e-12);
  EXPECT_NEAR(scheduled<RMSprop>(RMSpropOptions(0.5)).momentum(), 0.85, 1e-12);
  EXPECT_NEAR(std::get<0>(scheduled<Adam>(AdamOptions(0.5)).betas()), 0.85, 1e-12);
  EXPECT_NEAR(std::get<0>(scheduled<AdamW>(AdamWOptions(0.5)).betas()), 0.85, 1e-12);
  EXPECT_NEAR(std::get<1>(scheduled<AdamW>(AdamWOptions(0.5)).betas()), 0.999, 1e-12);
}

TEST(Schedule, SupportsOptimizersWithoutMomentum) {
  torch::optim::Adagrad optimizer(std::vector<at::Tensor>{gaussian({3}, 1)},
                                  torch::optim::AdagradOptions(0.5));
  Scheduler(optimizer, cosine(2)).prepare(1);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  expect_error<c10::TypeError>([&] { Scheduler(optimizer, onecycle(2)); },
                               "expected an optimizer with a momentum or with betas");
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
}

TEST(Schedule, ContinuesInResumedTraining) {
  const auto param = gaussian({2, 3, 4}, 1);
  Tensorion whole({param.clone()}, TensorionOptions(0.4));
  Scheduler schedule(whole, cosine(10, {.warmup_steps = 3}));
  for (int step = 0; step < 5; ++step) schedule.step();
  std::stringstream file;
  torch::serialize::OutputArchive out;
  whole.save(out);
  out.save_to(file);

  Tensorion resumed({param.clone()}, TensorionOptions(0.4));
  Scheduler second(resumed, cosine(10, {.warmup_steps = 3}));
  torch::serialize::InputArchive in;
  in.load_from(file);
  resumed.load(in);
  second.prepare(5);
  schedule.step();
  second.step();
  EXPECT_EQ(options_of(resumed, 0).lr(), options_of(whole, 0).lr());
}

TEST(Schedule, KeepsItsLastValue) {
  EXPECT_DOUBLE_EQ(cosine(10, {.final = 0.25}).lr(11), 0.25);
  EXPECT_DOUBLE_EQ(onecycle(10).lr(11), onecycle(10).lr(9));
  EXPECT_DOUBLE_EQ(onecycle(10).momentum(11), 0.95);
}

TEST(Schedule, ThrowsForBadOptions) {
  const auto expect_refused = [](const auto& make, const std::string& part) {
    expect_error<c10::ValueError>(make, part);
  };
  expect_refused([] { multistep({2}, 0); }, "gamma must be finite and positive, got 0");
  expect_refused([] { multistep({0}); }, "milestones must be at least 1, got 0");
  expect_refused([] { cosine(0); }, "[tensorion.cosine] total_steps must be at least 1, got 0");
  expect_refused([] { cosine(5, {.warmup_steps = 5}); }, "warmup_steps must be in [0, 5), got 5");
  expect_refused([] { cosine(5, {.warmup_start = 2}); }, "warmup_start must be in [0, 1], got 2");
  expect_refused([] { cosine(5, {.final = -1}); }, "final must be in [0, 1], got -1");
  expect_refused([] { onecycle(0); }, "[tensorion.onecycle] total_steps must be at least 1, got 0");
  expect_refused([] { onecycle(5, {.pct_start = 2}); }, "pct_start must be in [0, 1], got 2");
  expect_refused([] { onecycle(5, {.anneal_strategy = "cosine"}); }, "must be cos or linear, got cosine");
  expect_refused([] { onecycle(5, {.div_factor = 0}); }, "must be positive, got 0 and 10000");
  Tensorion optimizer({gaussian({2, 3, 4}, 1)});
  expect_refused([&] { Scheduler(optimizer, Schedule{}); },
                 "expected a schedule with a function lr, got none");
  expect_refused([&] { Scheduler(optimizer, constant()).prepare(-1); },
                 "the step must not be negative, got -1");
  Scheduler scheduler(optimizer, constant());
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({gaussian({2, 3, 4}, 2)}));
  expect_refused([&] { scheduler.step(); },
                 "expected the 1 param groups that the scheduler was constructed with, got 2");
}

}  // namespace
}  // namespace tensorion
