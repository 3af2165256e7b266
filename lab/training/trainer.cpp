#include "lab/training/trainer.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "lab/training/device.h"
#include "lab/training/evaluation.h"
#include "lab/training/gradients.h"
#include "tensorion/step.h"

namespace tensorion::lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxDeferredSteps = 50;  // steps after which deferred metrics are read
constexpr double kMinLossScale = 1e-10;    // if gradients overflow below this scale, the run has diverged
constexpr char kAverage[] = "ema.";
constexpr char kScaler[] = "scaler.";
constexpr char kGenerator[] = "generator.";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

at::Generator device_generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

// The model has the averaged weights while the guard exists.
class AveragedWeightsGuard {
 public:
  explicit AveragedWeightsGuard(WeightAverage& average) : average_(average) { average_.swap(); }
  ~AveragedWeightsGuard() { average_.swap(); }
  AveragedWeightsGuard(const AveragedWeightsGuard&) = delete;
  AveragedWeightsGuard& operator=(const AveragedWeightsGuard&) = delete;

 private:
  WeightAverage& average_;
};

}  // namespace

Trainer::Trainer(Classifier& model, torch::optim::Optimizer& optimizer, const DataLoader& train,
                 const DataLoader& test, TrainerOptions options)
    : model_(model),
      optimizer_(optimizer),
      train_(train),
      test_(test),
      options_(std::move(options)),
      scheduler_(optimizer, make_schedule(options_.schedule, options_.epochs, steps_per_epoch())) {
  TORCH_CHECK_VALUE(options_.label_smoothing >= 0 && options_.label_smoothing < 1,
                    "[tensorion.train] label_smoothing must be in [0, 1), got ", options_.label_smoothing);
  TORCH_CHECK_VALUE(
      options_.nonfinite == "error" || options_.nonfinite == "skip" || options_.nonfinite == "ignore",
      "[tensorion.train] nonfinite must be error, skip or ignore, got ", options_.nonfinite);
  TORCH_CHECK_VALUE(options_.clip_grad >= 0 && std::isfinite(options_.clip_grad),
                    "[tensorion.train] clip_grad must be finite and non-negative, got ", options_.clip_grad);
  TORCH_CHECK_VALUE(options_.amp == "off" || options_.amp == "bf16" || options_.amp == "fp16",
                    "[tensorion.train] amp must be off, bf16 or fp16, got ", options_.amp);
  if (options_.ema != 0) average_.emplace(model, options_.ema);
  if (options_.amp == "fp16") scaler_.emplace(options_.device);
}

int64_t Trainer::steps_per_epoch() const {
  TORCH_CHECK_VALUE(options_.accumulate >= 1, "[tensorion.train] accumulate must be at least 1, got ",
                    options_.accumulate);
  return (batches() + options_.accumulate - 1) / options_.accumulate;
}

int64_t Trainer::step() const {
  return state_.epoch * steps_per_epoch() + (state_.batch + options_.accumulate - 1) / options_.accumulate;
}

void Trainer::set_state(TrainingState state) {
  TORCH_CHECK_VALUE(state.epoch >= 0 && state.epoch <= options_.epochs && state.batch >= 0 &&
                        state.batch <= batches() && state.history.size() == static_cast<size_t>(state.epoch),
                    "[tensorion.train] the state does not match a run of ", options_.epochs, " epochs of ",
                    batches(), " batches: got epoch ", state.epoch, ", batch ", state.batch,
                    " and metrics of ", state.history.size(), " epochs");
  state_ = std::move(state);
}

const TrainingState& Trainer::state() const {
  read_deferred();
  return state_;
}

NamedTensors Trainer::average() const { return average_ ? average_->tensors() : NamedTensors(); }

NamedTensors Trainer::tensors() const {
  NamedTensors out;
  for (const auto& [name, tensor] : average()) out[kAverage + name] = tensor;
  if (scaler_) {
    for (const auto& [name, tensor] : scaler_->state()) out[kScaler + name] = tensor;
  }
  if (!options_.device.is_cpu()) {
    out[kGenerator + c10::DeviceTypeName(options_.device.type(), /*lower_case=*/true)] =
        device_generator(options_.device).get_state();
  }
  return out;
}

void Trainer::load_tensors(const NamedTensors& tensors, const std::string& source) {
  if (scaler_) scaler_->load_state(with_prefix(tensors, kScaler));
  if (average_) average_->load(with_prefix(tensors, kAverage), source);
  if (options_.device.is_cpu()) return;
  const auto state = tensors.find(kGenerator + c10::DeviceTypeName(options_.device.type(), true));
  if (state == tensors.end()) return;
  auto generator = device_generator(options_.device);
  generator.set_state(state->second);
}

void Trainer::run(TrainingObserver& observer) {
  while (state_.epoch < options_.epochs) {
    train_epoch(observer);
    observer.before_test(*this);
    finish_epoch(observer);
    observer.after_epoch(*this);
  }
}

void Trainer::train_epoch(TrainingObserver& observer) {
  model_.train();
  auto start = Clock::now();
  auto epoch = train_.epoch(state_.epoch, state_.batch);
  while (state_.batch < batches()) {
    train_step(epoch);
    const double seconds = seconds_since(start);
    state_.seconds += seconds;
    state_.logged_seconds += seconds;
    if (options_.log_steps > 0 && step() % options_.log_steps == 0) observer.step_logged(log_step());
    observer.after_step(*this);
    start = Clock::now();
  }
}

void Trainer::train_step(DataLoader::Epoch& epoch) {
  scheduler_.prepare(step());
  optimizer_.zero_grad();
  const int64_t count = std::min(options_.accumulate, batches() - state_.batch);
  const int64_t samples = train_.samples(state_.batch, count);
  const auto loss = backward(epoch, count, samples);
  const double value = options_.defer_metrics ? 0 : loss.item<double>();
  auto gradients = lab::gradients(model_);
  bool is_taken = true;
  if (scaler_ && !scaler_->unscale(gradients)) {
    if (scaler_->scale() < kMinLossScale)
      throw Diverged("the gradients overflow at every loss scale " + position(step()));
    is_taken = false;
  } else {
    const bool is_logged = options_.log_steps > 0 && (step() + 1) % options_.log_steps == 0;
    const bool is_checked = options_.defer_metrics && options_.nonfinite == "error";
    if (options_.clip_grad > 0 || is_logged || is_checked) gradient_norm_ = get_total_norm(gradients);
    is_taken = check_finite(loss, value);
    if (!is_taken) ++state_.skipped_steps;
  }
  if (is_taken) {
    if (options_.clip_grad > 0) clip_grads_with_norm_(gradients, gradient_norm_, options_.clip_grad);
    const auto start = Clock::now();
    optimizer_.step();
    state_.optimizer_seconds += seconds_since(start);
    if (average_) average_->update();
    if (options_.defer_metrics) {
      defer_loss(loss, samples);
    } else {
      add_loss(value * static_cast<double>(samples), samples);
    }
  }
  state_.batch += count;
  if (deferred_.steps >= kMaxDeferredSteps) read_deferred();
}

at::Tensor Trainer::backward(DataLoader::Epoch& epoch, int64_t count, int64_t samples) {
  at::Tensor sum;
  for (int64_t i = 0; i < count; ++i) {
    const auto start = Clock::now();
    const auto batch = to_device(epoch.next().value(), options_.device);
    state_.data_seconds += seconds_since(start);
    at::Tensor loss;
    {
      const Autocast autocast(options_.device, options_.amp);
      loss = at::cross_entropy_loss(model_.forward(batch.images), batch.labels, {}, at::Reduction::Mean, -100,
                                    options_.label_smoothing);
    }
    // Weighted by the size of the batch, because the last batch of an epoch may be smaller.
    if (count > 1) loss = loss * (static_cast<double>(batch.labels.size(0)) / static_cast<double>(samples));
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach();
  }
  return sum;
}

bool Trainer::check_finite(const at::Tensor& loss, double value) {
  if (options_.nonfinite == "ignore") return true;
  if (options_.defer_metrics) {
    if (options_.nonfinite == "skip") return true;
    auto& first = deferred_.first_nonfinite;
    if (!first.defined()) first = at::full({}, -1, loss.options().dtype(at::kLong));
    const auto is_first = (first < 0) & ~(loss + gradient_norm_).isfinite();
    first = at::where(is_first, at::full({}, step(), first.options()), first);
    return true;
  }
  const auto what = nonfinite_part(value);
  if (what.empty()) return true;
  if (options_.nonfinite == "error") throw Diverged(what + " " + position(step()));
  return false;
}

std::string Trainer::nonfinite_part(double loss) const {
  std::string parts;
  if (!std::isfinite(loss)) parts = c10::str("the loss is ", loss);
  for (const auto& parameter : model_.named_parameters()) {
    const auto& gradient = parameter.value().grad();
    if (gradient.defined() && any_nonfinite({gradient}).item<float>() != 0) {
      return parts + (parts.empty() ? "" : " and ") + "the gradient of " + parameter.key() + " is not finite";
    }
  }
  return parts;
}

std::string Trainer::position(int64_t step) const {
  return c10::str("in epoch ", step / steps_per_epoch() + 1, ", step ", step % steps_per_epoch() + 1, " of ",
                  steps_per_epoch());
}

void Trainer::add_loss(double loss_sum, int64_t samples) const {
  state_.loss_sum += loss_sum;
  state_.samples += samples;
  state_.logged_loss_sum += loss_sum;
  state_.logged_samples += samples;
}

void Trainer::defer_loss(const at::Tensor& loss, int64_t samples) {
  auto& sum = deferred_.loss_sum;
  const auto real = options_.device.is_mps() ? at::kFloat : at::kDouble;
  const auto added = loss.to(real) * static_cast<double>(samples);
  sum = sum.defined() ? sum + added : added;
  deferred_.samples += samples;
  ++deferred_.steps;
}

void Trainer::read_deferred() const {
  if (!deferred_.loss_sum.defined()) return;
  const auto deferred = std::exchange(deferred_, {});
  add_loss(deferred.loss_sum.item<double>(), deferred.samples);
  const auto& first = deferred.first_nonfinite;
  const int64_t failed_step = first.defined() ? first.item<int64_t>() : -1;
  if (failed_step >= 0) throw Diverged("the loss or a gradient is not finite " + position(failed_step));
}

StepMetrics Trainer::log_step() {
  read_deferred();
  const StepMetrics metrics{
      .step = step(),
      .epoch = state_.epoch + 1,
      .loss = state_.logged_loss_sum / static_cast<double>(state_.logged_samples),
      .lr = optimizer_.param_groups()[0].options().get_lr(),
      .gradient_norm = gradient_norm_.defined() ? gradient_norm_.item<double>() : NAN,
      .images_per_second = static_cast<double>(state_.logged_samples) / state_.logged_seconds};
  state_.logged_loss_sum = 0;
  state_.logged_samples = 0;
  state_.logged_seconds = 0;
  return metrics;
}

void Trainer::finish_epoch(TrainingObserver& observer) {
  // Restores the learning rate of the last step, which may have been taken by another process.
  scheduler_.prepare(step() - 1);
  read_deferred();
  const auto test =
      evaluate(model_, test_, options_.device, options_.amp, [&] { observer.after_test_batch(*this); });
  EpochMetrics metrics{.epoch = state_.epoch + 1,
                       .lr = optimizer_.param_groups()[0].options().get_lr(),
                       .train_loss = state_.loss_sum / static_cast<double>(state_.samples),
                       .test_loss = test.loss,
                       .test_accuracy = test.accuracy,
                       .seconds = state_.seconds,
                       .optimizer_seconds = state_.optimizer_seconds,
                       .data_seconds = state_.data_seconds};
  if (average_) {
    const AveragedWeightsGuard guard(*average_);
    const auto averaged =
        evaluate(model_, test_, options_.device, options_.amp, [&] { observer.after_test_batch(*this); });
    metrics.ema_test_loss = averaged.loss;
    metrics.ema_test_accuracy = averaged.accuracy;
  }
  auto history = std::move(state_.history);
  history.push_back(metrics);
  state_ = {.epoch = state_.epoch + 1,
            .logged_loss_sum = state_.logged_loss_sum,
            .logged_samples = state_.logged_samples,
            .logged_seconds = state_.logged_seconds,
            .skipped_steps = state_.skipped_steps,
            .history = std::move(history)};
}

}  // namespace tensorion::lab
