// What config.json says of a run: its options, and the data that it was given.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/io/safetensors.h"
#include "lab/training/run_config.h"

namespace tensorion::lab {

// The options under the names of the command line, and what was found of the data: where it is, how many
// samples and classes, its fingerprint, the names of the classes, and how pictures are prepared.
nlohmann::ordered_json describe(const RunConfig& config, const DatasetSplits& data);

// Throws if the run in the folder was begun otherwise: the error names the first option that differs. The
// data may have moved.
void check_same(const std::filesystem::path& folder, const nlohmann::json& begun,
                const nlohmann::ordered_json& now);

// What a file of weights says about itself: the model, the names of the classes, how pictures are prepared.
Metadata weights_metadata(const nlohmann::ordered_json& described);

}  // namespace tensorion::lab
