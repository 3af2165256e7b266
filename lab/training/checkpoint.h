// Checkpoints: all that a run needs to go on, bit for bit, in a file that is either whole or not there.
//
//   FOLDER/checkpoint.safetensors           the newest
//   FOLDER/checkpoint.previous.safetensors  the one before it
//
// Tensors: "model.<name>", "optimizer.<parameter>.<field>" and "generator" (torch's CPU generator). The
// metadata's "state" is the TrainingState as JSON. The file's checksum is checked; reading one runs no code
// of the file's.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lab/training/trainer.h"

namespace tensorion::lab {

// Keeps the previous checkpoint. Where writing fails, the newest is that of before.
void save_checkpoint(const std::filesystem::path& folder, Classifier& model,
                     torch::optim::Optimizer& optimizer, const TrainingState& state);

// Puts back the newest checkpoint, or the previous where the newest is missing or damaged (`warn` is then
// told why). None where there is no checkpoint. A checkpoint that does not fit the model or the optimizer is
// an error, and both stay as they were.
std::optional<TrainingState> load_checkpoint(const std::filesystem::path& folder, Classifier& model,
                                             torch::optim::Optimizer& optimizer,
                                             const std::function<void(const std::string&)>& warn);

// Of a run that is over.
void remove_checkpoints(const std::filesystem::path& folder);

}  // namespace tensorion::lab
