#include "lab/training/run_record.h"

#include <nlohmann/json.hpp>

#include "lab/io/file.h"
#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string to_text(const Transform& transform) {
  std::string text;
  if (const auto* padded = std::get_if<PaddedCrop>(&transform.crop)) {
    text = padded->padding == 0 ? "none" : string_printf("random crop, padding %ld", padded->padding);
  } else if (const auto* resized = std::get_if<RandomResizedCrop>(&transform.crop)) {
    text = string_printf("random resized crop, area %g to %g", resized->min_area, resized->max_area);
  } else {
    text = string_printf("shorter side resized to %ld, center crop",
                         std::get<CenterCrop>(transform.crop).shorter_side);
  }
  if (transform.interpolation == Interpolation::kBicubic) text += ", bicubic";
  if (transform.flip) text += ", random horizontal flip";
  if (transform.flip_vertical) text += ", random vertical flip";
  if (transform.transpose) text += ", transposed";
  return text;
}

ordered_json preprocessing(const DatasetSplits& data) {
  const auto& test = data.test_transform;
  return {{"size", {test.size.height, test.size.width}},
          {"mean", test.normalization.mean},
          {"std", test.normalization.std},
          {"train", to_text(data.train_transform)},
          {"test", to_text(data.test_transform)}};
}

}  // namespace

ordered_json describe(const RunConfig& config, const DatasetSplits& data) {
  auto out = to_json(config);
  auto folder = data.folder;  // empty if the data was created in memory
  if (!folder.empty()) folder = std::filesystem::absolute(folder).lexically_normal();
  if (!is_utf8(folder.string())) throw FileError(shortened(folder.string()), "expected a name in UTF-8");
  for (const auto& name : data.classes) {
    if (!is_utf8(name)) throw FileError(folder / shortened(name), "expected a name in UTF-8");
  }
  out["data"] = folder.string();
  out["train_samples"] = data.train.count();
  out["test_samples"] = test_split(config, data).count();
  out["classes"] = data.classes.size();
  out["data_fingerprint"] = data.fingerprint;
  out["class_names"] = data.classes;
  out["preprocessing"] = preprocessing(data);
  if (!config.deviations.empty()) out["deviations"] = config.deviations;
  return out;
}

// Options are compared in the order in which they are written. A derived option comes after the option from
// which it is derived, so the error names the latter.
void check_same(const std::filesystem::path& folder, const json& recorded, const ordered_json& now) {
  const auto defaults = to_json(RunConfig{});
  for (const auto& [key, value] : now.items()) {
    if (key == "data" || key == "device") continue;  // a run may be resumed elsewhere
    if (key == "deviations") continue;               // the wording may change
    const auto before = recorded.find(key);
    if (before != recorded.end() && *before == json(value)) continue;
    const bool is_new = key == "data_fingerprint" || key == "class_names" || key == "preprocessing";
    const bool is_default = defaults.contains(key) && defaults.at(key) == value;
    // The run was started before these properties were recorded or before the option existed.
    if (before == recorded.end() && (is_new || is_default)) continue;
    const std::string was = before == recorded.end() ? "nothing" : shortened(before->dump());
    TORCH_CHECK_VALUE(false, "[tensorion.train] ", folder.string(), " was started with ",
                      is_recorded(key) ? "other data: " + key : flag_name(key), " ", was, ", got ",
                      shortened(value.dump()),
                      ". Resume with the same options, or start a new run in another folder (--out)");
  }
}

Metadata weights_metadata(const ordered_json& described) {
  Metadata metadata{{"format", "pt"}};
  for (const char* key : {"model", "dataset", "class_names", "preprocessing"}) {
    const auto& value = described.at(key);
    metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return metadata;
}

}  // namespace tensorion::lab
