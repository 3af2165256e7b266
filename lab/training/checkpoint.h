// Checkpoints: files with everything that is needed to resume a run bit for bit. They are written atomically.
//
//   FOLDER/checkpoint.safetensors           the newest checkpoint
//   FOLDER/checkpoint.previous.safetensors  the checkpoint before it
//
// The tensors are "model.<name>", "optimizer.<parameter>.<field>", "generator" (torch's CPU generator) and
// "trainer.<name>" (see Trainer::tensors). They can be loaded on a different device from the one they were
// saved on. The metadata entry "state" is the TrainingState as JSON. Loading verifies the checksum of the
// file and never executes code.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lab/training/trainer.h"

namespace tensorion::lab {

// Saves a checkpoint and keeps the one before it. If writing fails, the existing checkpoints are unchanged.
void save_checkpoint(const std::filesystem::path& folder, Classifier& model,
                     torch::optim::Optimizer& optimizer, const TrainingState& state,
                     const NamedTensors& trainer_tensors = {});

// Restores the newest checkpoint. If it is missing or damaged, calls `warn` with the reason and restores the
// previous one. Returns nullopt if there is no checkpoint. Throws if the checkpoint does not match the model
// or the optimizer; both are unchanged in this case. `load_tensors` receives the trainer's tensors and the
// name of the file before anything is changed. It may throw to reject them.
using TensorLoader = std::function<void(const NamedTensors& tensors, const std::string& source)>;
std::optional<TrainingState> load_checkpoint(
    const std::filesystem::path& folder, Classifier& model, torch::optim::Optimizer& optimizer,
    const std::function<void(const std::string&)>& warn,
    const TensorLoader& load_tensors = [](const NamedTensors&, const std::string&) {});

// Removes all checkpoints of a finished run.
void remove_checkpoints(const std::filesystem::path& folder);

}  // namespace tensorion::lab
