// Checkpoints: everything that a run needs to go on, bit for bit, in a file that is written atomically.
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

// Keeps the previous checkpoint. If writing fails, the newest checkpoint stays what it was.
void save_checkpoint(const std::filesystem::path& folder, Classifier& model,
                     torch::optim::Optimizer& optimizer, const TrainingState& state);

// Restores the newest checkpoint, or the previous one if the newest is missing or damaged (`warn` is then
// told why). Returns nothing if there is no checkpoint. If a checkpoint does not fit the model or the
// optimizer, throws and leaves both as they were.
std::optional<TrainingState> load_checkpoint(const std::filesystem::path& folder, Classifier& model,
                                             torch::optim::Optimizer& optimizer,
                                             const std::function<void(const std::string&)>& warn);

// For a run that is over.
void remove_checkpoints(const std::filesystem::path& folder);

}  // namespace tensorion::lab
