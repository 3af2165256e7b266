// Checkpoints: everything that a run needs to go on, bit for bit, in a file that is written atomically.
//
//   FOLDER/checkpoint.safetensors           the newest
//   FOLDER/checkpoint.previous.safetensors  the one before it
//
// Tensors: "model.<name>", "optimizer.<parameter>.<field>", "generator" (torch's CPU generator) and
// "trainer.<name>" (see Trainer::tensors). They come from any device, and go to any. The
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
                     torch::optim::Optimizer& optimizer, const TrainingState& state,
                     const NamedTensors& trainer_tensors = {});

// Restores the newest checkpoint, or the previous one if the newest is missing or damaged (`warn` is then
// told why). Returns nothing if there is no checkpoint. If a checkpoint does not fit the model or the
// optimizer, throws and leaves both as they were. `load_tensors` gets the trainer's tensors and the name of
// the file before anything is changed, and may refuse them by throwing.
using TensorLoader = std::function<void(const NamedTensors& tensors, const std::string& source)>;
std::optional<TrainingState> load_checkpoint(
    const std::filesystem::path& folder, Classifier& model, torch::optim::Optimizer& optimizer,
    const std::function<void(const std::string&)>& warn,
    const TensorLoader& load_tensors = [](const NamedTensors&, const std::string&) {});

// For a run that is over.
void remove_checkpoints(const std::filesystem::path& folder);

}  // namespace tensorion::lab
