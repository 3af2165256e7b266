#include "lab/experiments/laplace_run.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/experiments/laplacian.h"
#include "lab/text/strings.h"
#include "tensorion/step.h"
#include "tensorion/unfolding.h"

namespace tensorion::lab {
namespace {

// A fixed set of modes applies to the inner cores only. The first and the last core are matrices, which have
// a single unfolding.
Tensorion make_optimizer(const TensorTrain& train, const TensorionOptions& options) {
  std::vector<at::Tensor> matrices, tensors;
  for (const auto& core : train) (effective_order(core.sizes()) < 3 ? matrices : tensors).push_back(core);
  std::vector<torch::optim::OptimizerParamGroup> groups{param_group(
      matrices, options.unfolding().is_online() ? options : TensorionOptions(options).unfolding("balanced"))};
  if (!tensors.empty()) groups.push_back(param_group(tensors, options));
  return Tensorion(groups, options);
}

}  // namespace

std::string LaplaceProblem::str() const {
  return std::to_string(d) + "x" + std::to_string(n) + "x" + std::to_string(rank);
}

LaplaceProblem LaplaceProblem::parse(const std::string& text) {
  const auto parts = split(text, 'x');
  TORCH_CHECK_VALUE(parts.size() == 3,
                    "a problem must have the form DIMENSIONSxPOINTSxRANK, such as 10x32x8, got '", text, "'");
  const auto number = [&](size_t i, const char* what) {
    const auto value = to_integer(parts[i], std::string("the ") + what + " of a problem");
    TORCH_CHECK_VALUE(value >= 1, "the ", what, " of a problem must be at least 1, got '", text, "'");
    return value;
  };
  return {number(0, "dimensions"), number(1, "points"), number(2, "rank")};
}

const std::vector<std::string>& laplace_optimizers() {
  static const std::vector<std::string> names{"tensorion", "online", "muon", "sgd", "sgd-momentum", "adam"};
  return names;
}

TensorionOptions laplace_optimizer(const std::string& name, double lr, const LaplaceOptions& options) {
  auto out = TensorionOptions(lr).weight_decay(0).nonfinite("ignore");
  if (name == "sgd") return out.algorithm("sgd").momentum(0);
  if (name == "sgd-momentum") return out.algorithm("sgd").momentum(options.sgd_momentum);
  if (name == "adam") return out.algorithm("adamw");
  out.min_order(2).fallback(std::nullopt).momentum(options.momentum).polar(options.polar);
  if (name == "muon") return out.unfolding(Modes{0});
  if (name == "online") return out.unfolding("online");
  TORCH_CHECK_VALUE(name == "tensorion", "[tensorion.laplace] the optimizer must be one of ",
                    c10::Join(", ", laplace_optimizers()), ", got ", name);
  return out;
}

double LaplaceRun::final_error() const {
  return diverged || points.empty() ? std::numeric_limits<double>::infinity() : points.back().error;
}

LaplaceRun minimize_quotient(const LaplaceProblem& problem, const LaplaceRunKey& key,
                             const LaplaceOptions& options, const std::function<void()>& after_step) {
  using Clock = std::chrono::steady_clock;
  const double exact = smallest_eigenvalue(problem.d, problem.n);
  auto train =
      random_train(problem.d, problem.n, problem.rank, static_cast<uint64_t>(key.seed), options.dtype);
  for (auto& core : train) core.requires_grad_(true);
  auto optimizer = make_optimizer(train, laplace_optimizer(key.optimizer, key.lr, options));
  Scheduler scheduler(optimizer, make_schedule(options.schedule, 1, key.steps));

  LaplaceRun run{.key = key};
  const int64_t interval = std::max<int64_t>(1, key.steps / options.records);
  double seconds = 0;
  for (int64_t step = 0;; ++step) {
    auto start = Clock::now();
    const auto take_time = [&] { seconds += std::chrono::duration<double>(Clock::now() - start).count(); };
    optimizer.zero_grad();
    const auto loss = rayleigh_quotient(train);
    loss.backward();
    const auto quotient = loss.item<double>();
    std::vector<at::Tensor> gradients;
    for (const auto& core : train) gradients.push_back(core.grad());
    run.diverged = !std::isfinite(quotient) || any_nonfinite(gradients).item<float>() != 0;
    take_time();
    if (run.diverged) break;
    if (step % interval == 0 || step == key.steps) {
      run.points.push_back({.step = step,
                            .quotient = quotient,
                            .error = std::abs(quotient - exact) / exact,
                            .residual = residual(train, quotient) / exact,
                            .seconds = seconds});
    }
    if (step == key.steps) break;
    start = Clock::now();
    scheduler.prepare(step);
    optimizer.step();
    take_time();
    after_step();
  }
  return run;
}

nlohmann::ordered_json to_json(const LaplacePoint& point) {
  return {{"step", point.step},
          {"quotient", point.quotient},
          {"error", point.error},
          {"residual", point.residual},
          {"seconds", point.seconds}};
}

LaplacePoint laplace_point_from_json(const nlohmann::json& json) {
  return {.step = json.at("step").get<int64_t>(),
          .quotient = json.at("quotient").get<double>(),
          .error = json.at("error").get<double>(),
          .residual = json.at("residual").get<double>(),
          .seconds = json.at("seconds").get<double>()};
}

}  // namespace tensorion::lab
