// The contents of config.json: the options of a run and a description of its data.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/io/safetensors.h"
#include "lab/training/run_config.h"

namespace tensorion::lab {

// Returns the options under their names on the command line and a description of the data: its location, the
// numbers of samples and classes, its fingerprint, the names of the classes, and the preprocessing of images.
nlohmann::ordered_json describe(const RunConfig& config, const DatasetSplits& data);

// Throws if the run in the folder was started with other options. The error names the first option that
// differs. The location of the data may differ.
void check_same(const std::filesystem::path& folder, const nlohmann::json& recorded,
                const nlohmann::ordered_json& now);

// Returns the metadata of a weight file: the model, the names of the classes, and the preprocessing of
// images.
Metadata weights_metadata(const nlohmann::ordered_json& described);

}  // namespace tensorion::lab
