#include "lab/training/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <nlohmann/json.hpp>

#include "lab/models/state_dict.h"
#include "lab/training/optimizer_state_dict.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kFormat[] = "tensorion-checkpoint-2";
constexpr char kModel[] = "model.";
constexpr char kOptimizer[] = "optimizer.";
constexpr char kGenerator[] = "generator";
constexpr char kTrainer[] = "trainer.";

fs::path newest(const fs::path& folder) { return folder / "checkpoint.safetensors"; }
fs::path previous(const fs::path& folder) { return folder / "checkpoint.previous.safetensors"; }
fs::path unfinished(const fs::path& folder) { return folder / "checkpoint.new.safetensors"; }

std::string to_text(const TrainingState& state) {
  auto history = ordered_json::array();
  for (const auto& epoch : state.history) history.push_back(to_json(epoch));
  return ordered_json{{"epoch", state.epoch},
                      {"batch", state.batch},
                      {"loss_sum", state.loss_sum},
                      {"samples", state.samples},
                      {"seconds", state.seconds},
                      {"optimizer_seconds", state.optimizer_seconds},
                      {"data_seconds", state.data_seconds},
                      {"logged_loss_sum", state.logged_loss_sum},
                      {"logged_samples", state.logged_samples},
                      {"logged_seconds", state.logged_seconds},
                      {"skipped_steps", state.skipped_steps},
                      {"history", std::move(history)}}
      .dump();
}

TrainingState from_text(const std::string& text) {
  const auto parsed = json::parse(text);
  const auto sum = [](const json& value) { return value.is_null() ? NAN : value.get<double>(); };
  TrainingState state{.epoch = integer_from_json(parsed.at("epoch")),
                      .batch = integer_from_json(parsed.at("batch")),
                      .loss_sum = sum(parsed.at("loss_sum")),  // null in JSON means not finite
                      .samples = integer_from_json(parsed.at("samples")),
                      .seconds = parsed.at("seconds").get<double>(),
                      .optimizer_seconds = parsed.at("optimizer_seconds").get<double>(),
                      .data_seconds = parsed.value("data_seconds", 0.0),
                      .logged_loss_sum = sum(parsed.value("logged_loss_sum", json(0.0))),
                      .logged_samples = integer_from_json(parsed.value("logged_samples", json(0))),
                      .logged_seconds = parsed.value("logged_seconds", 0.0),
                      .skipped_steps = integer_from_json(parsed.at("skipped_steps"))};
  for (const auto& epoch : parsed.at("history")) state.history.push_back(epoch_metrics_from_json(epoch));
  return state;
}

// The saved state of the Mersenne Twister has both the position in its table and the number of values left.
// Torch does not check that the two agree; if they do not, it would read beyond the end of the table.
void check_engine(const at::mt19937_data_pod& engine) {
  const auto next = static_cast<int64_t>(engine.next_), left = static_cast<int64_t>(engine.left_);
  const bool is_fresh = next == 0 && left == 1;
  TORCH_CHECK_VALUE(is_fresh || next + left == at::MERSENNE_STATE_N + 1, "position ", next,
                    " does not match ", left, " values left of ", at::MERSENNE_STATE_N);
}

// A checkpoint in memory.
struct Contents {
  fs::path path;
  NamedTensors tensors;
  TrainingState state;
};

Contents read(const fs::path& path) {
  Contents contents{.path = path, .tensors = {}, .state = {}};
  auto file = read_safetensors(path);
  TORCH_CHECK_VALUE(file.metadata["format"] == kFormat, "[tensorion.checkpoint] ", path.string(),
                    ": expected the format ", kFormat, ", got '", file.metadata["format"], "'");
  TORCH_CHECK_VALUE(file.has_checksum, "[tensorion.checkpoint] ", path.string(), ": the checksum is missing");
  TORCH_CHECK_VALUE(file.tensors.contains(kGenerator), "[tensorion.checkpoint] ", path.string(),
                    ": the state of the random number generator is missing");
  try {
    auto generator = at::detail::createCPUGenerator();
    generator.set_state(file.tensors.at(kGenerator));
    check_engine(at::check_generator<at::CPUGeneratorImpl>(generator)->engine().data());
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(
        false, "[tensorion.checkpoint] ", path.string(),
        ": the state of the random number generator is not valid: ", error.what_without_backtrace());
  }
  try {
    contents.state = from_text(file.metadata["state"]);
  } catch (const json::exception& error) {
    TORCH_CHECK_VALUE(false, "[tensorion.checkpoint] ", path.string(),
                      ": the training state is not valid: ", error.what());
  }
  contents.tensors = std::move(file.tensors);
  return contents;
}

Contents read_previous(const fs::path& folder, const std::string& damage) {
  try {
    return read(previous(folder));
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, damage,
                      "; the previous checkpoint cannot be read either: ", error.what_without_backtrace());
  }
}

// Returns the newest checkpoint that is intact. If the newest file is damaged, the previous one replaces it.
// Otherwise the next save would rename the damaged file over the intact one.
std::optional<Contents> read_newest(const fs::path& folder,
                                    const std::function<void(const std::string&)>& warn) {
  const bool has_previous = fs::exists(previous(folder));
  if (fs::exists(newest(folder))) {
    try {
      return read(newest(folder));
    } catch (const c10::Error& error) {
      if (!has_previous) throw;
      const std::string damage = error.what_without_backtrace();
      auto contents = read_previous(folder, damage);
      warn(damage + "; continuing from the previous checkpoint");
      fs::rename(previous(folder), newest(folder));
      return contents;
    }
  }
  if (has_previous) return read(previous(folder));
  return std::nullopt;
}

}  // namespace

void save_checkpoint(const fs::path& folder, Classifier& model, torch::optim::Optimizer& optimizer,
                     const TrainingState& state, const NamedTensors& trainer_tensors) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : trainer_tensors) tensors[kTrainer + name] = tensor;
  for (const auto& [name, tensor] : state_dict(model)) tensors[kModel + name] = tensor;
  for (const auto& [name, tensor] : optimizer_state_dict(optimizer, model))
    tensors[kOptimizer + name] = tensor;
  tensors[kGenerator] = at::detail::getDefaultCPUGenerator().get_state();
  write_safetensors(unfinished(folder), tensors, {{"format", kFormat}, {"state", to_text(state)}});
  // If the program is killed between the two renames, the run resumes from the previous checkpoint.
  if (fs::exists(newest(folder))) fs::rename(newest(folder), previous(folder));
  fs::rename(unfinished(folder), newest(folder));
}

std::optional<TrainingState> load_checkpoint(const fs::path& folder, Classifier& model,
                                             torch::optim::Optimizer& optimizer,
                                             const std::function<void(const std::string&)>& warn,
                                             const TensorLoader& load_tensors) {
  const auto contents = read_newest(folder, warn);
  if (!contents) return std::nullopt;
  const auto source = contents->path.string();
  const auto weights = with_prefix(contents->tensors, kModel);
  TORCH_CHECK_VALUE(!check_state_dict(model, weights, source), "[tensorion.checkpoint] ", source,
                    " has a different number of classes");
  load_tensors(with_prefix(contents->tensors, kTrainer), source);
  load_optimizer_state_dict(optimizer, model, with_prefix(contents->tensors, kOptimizer), source);
  load_state_dict(model, weights, source);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(contents->tensors.at(kGenerator));
  return contents->state;
}

void remove_checkpoints(const fs::path& folder) {
  for (auto path : {newest(folder), previous(folder), unfinished(folder)}) {
    fs::remove(path);
    fs::remove(path += ".tmp");  // left by a process that was killed while writing
  }
}

}  // namespace tensorion::lab
