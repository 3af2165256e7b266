// Tests of saving and loading the optimizer, and of its state.
#include <c10/core/InferenceMode.h>
#include <torch/serialize.h>

#include <sstream>

#include "tensorion/optim/option_table.h"
#include "tensorion/optimizer.h"
#include "tests/optimizer_cases.h"

namespace tensorion {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

TEST(OptimizerState, ResumedTrainingIsBitwiseEqual) {
  const auto train = [](Tensorion& optimizer, const std::vector<at::Tensor>& params, int first, int last) {
    for (int k = first; k < last; ++k) {
      set_gradients(params, 100 * k);
      optimizer.step();
    }
  };
  const auto options =
      TensorionOptions(0.02).momentum(0.8).unfolding("online").ns_steps(7).fallback_lr(0.003);
  auto whole = parameters();
  Tensorion uninterrupted(whole, options);
  train(uninterrupted, whole, 0, 10);

  auto half = parameters();
  Tensorion first(half, options);
  train(first, half, 0, 5);
  std::stringstream file;
  torch::save(first, file);
  auto resumed = copies(half);
  for (auto& param : resumed) param.set_requires_grad(true);
  Tensorion second(resumed, TensorionOptions(99.0));
  torch::load(second, file);
  EXPECT_EQ(options_of(second.param_groups()[0]).lr(), 0.02);
  EXPECT_EQ(options_of(second.param_groups()[0]).unfolding().str(), "online");
  EXPECT_EQ(options_of(second.param_groups()[1]).lr(), 0.003);
  train(second, resumed, 5, 10);
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_TRUE(at::equal(resumed[i].detach(), whole[i].detach())) << i;
}

// Returns an archive that contains the options, as torch::save writes them.
torch::serialize::InputArchive archived(const TensorionOptions& options) {
  torch::serialize::OutputArchive out;
  options.serialize(out);
  std::stringstream file;
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  return in;
}

TEST(OptimizerState, SavesEveryOptionOfTheTable) {
  std::vector<std::string> names;
  for (const auto& option : option_table()) names.emplace_back(option.name);
  EXPECT_EQ(archived(TensorionOptions()).keys(), names);
}

TEST(OptimizerState, SavedOptionsKeepTheirFormat) {
  // Files of earlier versions have these keys with values of these types. Later versions must be able to read
  // them.
  const auto options = TensorionOptions(0.02)
                           .nesterov(true)
                           .unfolding(Modes{0, 2})
                           .ns_coefficients(Coefficients{{1, 2, 3}, {4, 5, 6}})
                           .fallback("sgd")
                           .fallback_lr(0.5)
                           .fallback_betas({0.8, 0.98})
                           .algorithm("adamw");
  auto archive = archived(options);
  const auto saved = [&](const char* key) {
    c10::IValue value;
    EXPECT_TRUE(archive.try_read(key, value)) << key;
    return value;
  };
  EXPECT_EQ(saved("lr").toDouble(), 0.02);
  EXPECT_EQ(saved("momentum").toDouble(), 0.95);
  EXPECT_EQ(saved("nesterov").toBool(), true);
  EXPECT_EQ(saved("weight_decay").toDouble(), 0.01);
  EXPECT_EQ(saved("unfolding").toStringRef(), "(0, 2)");
  EXPECT_EQ(saved("polar").toStringRef(), "auto");
  EXPECT_EQ(saved("ns_coefficients").toDoubleVector(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(saved("ns_steps").isNone());
  EXPECT_EQ(saved("adjust_lr_fn").toStringRef(), "match_rms_adamw");
  EXPECT_EQ(saved("min_order").toInt(), 3);
  EXPECT_EQ(saved("fallback").toStringRef(), "sgd");
  EXPECT_EQ(saved("fallback_lr").toDouble(), 0.5);
  EXPECT_TRUE(saved("fallback_weight_decay").isNone());
  EXPECT_EQ((saved("fallback_betas").to<std::tuple<double, double>>()), std::make_tuple(0.8, 0.98));
  EXPECT_EQ(saved("fallback_eps").toDouble(), 1e-8);
  EXPECT_EQ(saved("fallback_momentum").toDouble(), 0.9);
  EXPECT_EQ(saved("nonfinite").toStringRef(), "error");
  EXPECT_EQ(saved("maximize").toBool(), false);
  EXPECT_EQ(saved("algorithm").toStringRef(), "adamw");

  TensorionOptions loaded;
  loaded.serialize(archive);
  for (const auto& option : option_table()) EXPECT_EQ(option.get(loaded), option.get(options)) << option.name;
}

TEST(OptimizerState, LoadsNothingIfStateDoesNotMatch) {
  auto params = parameters();
  Tensorion optimizer(params, TensorionOptions(0.02));
  set_gradients(params, 1);
  optimizer.step();
  std::stringstream file;
  torch::save(optimizer, file);
  auto others = parameters();
  others[0] = parameter({6, 4, 2, 2}, 3);
  Tensorion other(others, TensorionOptions(0.5));
  expect_error<c10::ValueError>(
      [&] { torch::load(other, file); },
      "expected a momentum_buffer of shape [6, 4, 2, 2] for parameter 0 of group 0, got [6, 4, 3, 3]");
  EXPECT_EQ(options_of(other.param_groups()[0]).lr(), 0.5);
  EXPECT_TRUE(other.state().empty());
  Tensorion fewer({params[0]}, TensorionOptions(0.5));
  std::stringstream again(file.str());
  expect_error<c10::ValueError>([&] { torch::load(fewer, again); },
                                "expected the state of 1 param groups, got 2");
}

TEST(OptimizerState, LoadedStateIsConvertedToDtypeOfParameter) {
  // Regression: a double parameter continued with the float momentum that was saved.
  auto params = parameters();
  Tensorion optimizer(params, TensorionOptions(0.02));
  set_gradients(params, 1);
  optimizer.step();
  std::stringstream file;
  torch::save(optimizer, file);
  std::vector<at::Tensor> others;
  for (const auto& param : params) others.push_back(param.detach().to(at::kDouble).set_requires_grad(true));
  Tensorion other(others, TensorionOptions(0.02));
  torch::load(other, file);
  const auto state_of = [](Tensorion& from, const at::Tensor& param) -> const TensorionParamState& {
    return static_cast<const TensorionParamState&>(*from.state().at(param.unsafeGetTensorImpl()));
  };
  const auto& momentum = state_of(other, others[0]).momentum_buffer();
  EXPECT_EQ(momentum.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(momentum, state_of(optimizer, params[0]).momentum_buffer().to(at::kDouble)));
  EXPECT_EQ(state_of(other, others[1]).exp_avg().scalar_type(), at::kDouble);
  EXPECT_EQ(state_of(other, others[1]).step().scalar_type(), at::kFloat);
  set_gradients(params, 2);
  for (size_t i = 0; i < params.size(); ++i) others[i].mutable_grad() = params[i].grad().to(at::kDouble);
  optimizer.step();
  other.step();
  for (size_t i = 0; i < params.size(); ++i) expect_close(params[i].detach(), others[i].detach(), 1e-5);
}

TEST(OptimizerState, FirstStepInInferenceModeCreatesNormalTensors) {
  // Regression: the state consisted of inference tensors, which a step outside of inference mode cannot
  // update.
  auto params = parameters(), twins = parameters();
  Tensorion optimizer(params), reference(twins);
  set_gradients(params, 1);
  set_gradients(twins, 1);
  reference.step();
  {
    const c10::InferenceMode inference;
    optimizer.step();
    std::stringstream file;
    torch::save(optimizer, file);
    torch::load(optimizer, file);
  }
  set_gradients(params, 2);
  set_gradients(twins, 2);
  optimizer.step();
  reference.step();
  expect_unchanged(params, copies(twins));
}

TEST(OptimizerState, OnlineChoicesAreSaved) {
  const auto options = TensorionOptions(0.02).unfolding("online").online_interval(3);
  auto params = parameters(), twins = parameters();
  Tensorion optimizer(params, options), reference(twins, options);
  for (int k = 0; k < 7; ++k) {
    set_gradients(params, k);
    set_gradients(twins, k);
    if (k == 4) {
      std::stringstream file;
      torch::save(optimizer, file);
      Tensorion restored(params, options);
      torch::load(restored, file);
      restored.step();
      optimizer = std::move(restored);
    } else {
      optimizer.step();
    }
    reference.step();
    expect_unchanged(params, copies(twins));
  }
  const auto& state =
      static_cast<const TensorionParamState&>(*optimizer.state().at(params[0].unsafeGetTensorImpl()));
  EXPECT_EQ(state.step().item<int64_t>(), 7);
  EXPECT_GE(state.unfolding().item<int64_t>(), 0);
}

}  // namespace
}  // namespace tensorion
