#include "lab/training/optimizers.h"

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <nlohmann/json.hpp>

#include "lab/training/optimizer_state_dict.h"
#include "tests/lab/training/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_close;
using tensorion::testing::expect_error;
using tensorion::testing::gaussian;
using testing::TinyModel;

// Takes a few steps with gradients that depend only on the step.
void take_steps(const TinyModel& model, torch::optim::Optimizer& optimizer, int64_t first, int64_t count) {
  for (int64_t step = first; step < first + count; ++step) {
    uint64_t seed = 100 * static_cast<uint64_t>(step);
    for (auto& parameter : model.parameters()) parameter.mutable_grad() = gaussian(parameter.sizes(), ++seed);
    optimizer.step();
  }
}

void expect_same_parameters(const TinyModel& model, const TinyModel& reference, double tolerance) {
  const auto expected = reference.named_parameters();
  for (const auto& parameter : model.named_parameters()) {
    expect_close(parameter.value(), expected[parameter.key()], tolerance, parameter.key());
  }
}

TEST(Optimizers, SgdMatchesTorch) {
  TinyModel model, reference;
  Tensorion optimizer(model.parameters(), default_options("sgd"));
  torch::optim::SGD torchs(reference.parameters(),
                           torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4));
  take_steps(model, optimizer, 0, 4);
  take_steps(reference, torchs, 0, 4);
  expect_same_parameters(model, reference, 1e-5);
}

TEST(Optimizers, AdamwMatchesTorch) {
  TinyModel model, reference;
  Tensorion optimizer(model.parameters(), default_options("adamw").lr(0.01));
  torch::optim::AdamW torchs(reference.parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.01));
  take_steps(model, optimizer, 0, 4);
  take_steps(reference, torchs, 0, 4);
  expect_same_parameters(model, reference, 1e-5);
}

TEST(Optimizers, MuonOrthogonalizesFlattenedKernel) {
  TinyModel model;
  Tensorion optimizer(model.parameters(), default_options("muon").lr(0.5).weight_decay(0).polar("svd"));
  const auto& kernel = model.named_parameters()["conv.weight"];
  const auto before = kernel.detach().clone();
  take_steps(model, optimizer, 0, 1);
  const auto update = (before - kernel.detach()).flatten(1);
  const double scale = 0.5 * 0.2 * std::sqrt(9.0);  // for a 4 x 9 matrix
  expect_close(at::mm(update, update.t()) / (scale * scale), at::eye(4), 1e-5);
  ASSERT_EQ(optimizer.param_groups().size(), 2U);
  EXPECT_EQ(optimizer.param_groups()[0].params().size(), 1U);
}

TEST(Optimizers, JsonHasTheOptionsOfTheOptimizer) {
  const auto keys = [](const std::string& optimizer) {
    std::vector<std::string> names;
    const auto json = to_json(optimizer, default_options(optimizer));
    for (const auto& [name, value] : json.items()) names.push_back(name);
    return names;
  };
  EXPECT_EQ(keys("sgd"), (std::vector<std::string>{"lr", "weight_decay", "momentum"}));
  EXPECT_EQ(keys("adamw"), (std::vector<std::string>{"lr", "weight_decay", "betas", "eps"}));
  auto without_choice = keys("tensorion");
  std::erase(without_choice, "unfolding");
  std::erase(without_choice, "online_interval");
  EXPECT_EQ(keys("muon"), without_choice);
  const auto json = to_json("tensorion", default_options("tensorion").lr(0.5).fallback_weight_decay(0.25));
  EXPECT_EQ(json["unfolding"], "balanced");
  EXPECT_EQ(json["fallback_lr"], 0.5);
  EXPECT_EQ(json["fallback_weight_decay"], 0.25);
  expect_error<c10::ValueError>([] { default_options("lion"); },
                                "one of sgd, adamw, muon, tensorion, got lion");
}

TEST(OptimizerState, ResumesBitForBit) {
  for (const auto& name : optimizer_names()) {
    TinyModel model, copy;
    Tensorion optimizer(model.parameters(), default_options(name));
    take_steps(model, optimizer, 0, 2);
    {
      const c10::NoGradGuard no_grad;
      for (const auto& parameter : copy.named_parameters()) {
        parameter.value().copy_(model.named_parameters()[parameter.key()]);
      }
    }
    Tensorion other(copy.parameters(), default_options(name));
    NamedTensors stored;
    for (const auto& [key, tensor] : optimizer_state_dict(optimizer, model)) stored[key] = tensor.clone();
    load_optimizer_state_dict(other, copy, stored, "file");
    take_steps(model, optimizer, 2, 2);
    take_steps(copy, other, 2, 2);
    expect_same_parameters(copy, model, 0);
  }
}

TEST(OptimizerState, RejectsMismatchedTensors) {
  TinyModel model;
  Tensorion optimizer(model.parameters(), default_options("tensorion"));
  take_steps(model, optimizer, 0, 1);
  const auto good = optimizer_state_dict(optimizer, model);
  const auto count = good.at("fc.bias.step").item<float>();
  const auto refuse = [&](const std::function<void(NamedTensors&)>& change, const std::string& part) {
    auto bad = good;
    change(bad);
    expect_error<c10::ValueError>([&] { load_optimizer_state_dict(optimizer, model, bad, "a/file"); },
                                  "a/file: " + part);
    EXPECT_EQ(optimizer_state_dict(optimizer, model).at("fc.bias.step").item<float>(), count);
  };
  refuse([](auto& tensors) { tensors.erase("fc.bias.exp_avg"); }, "fc.bias.exp_avg is missing");
  refuse([](auto& tensors) { tensors["fc.bias.momentum_buffer"] = at::zeros({3}); },
         "fc.bias.momentum_buffer is unexpected");
  refuse(
      [](auto& tensors) { tensors["conv.weight.momentum_buffer"] = at::zeros({4, 1, 3, 2}); },
      "conv.weight.momentum_buffer must have shape [4, 1, 3, 3] and dtype Float, got [4, 1, 3, 2] and Float");
  refuse([](auto& tensors) { tensors["fc.bias.step"] = at::zeros({}, at::kLong); },
         "fc.bias.step must have shape [] and dtype");
}

}  // namespace
}  // namespace tensorion::lab
