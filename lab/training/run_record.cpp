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
  auto folder = data.folder;  // empty for data that was made in memory
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

// In the order in which options are written: a derived one comes after the one that it derives from.
void check_same(const std::filesystem::path& folder, const json& begun, const ordered_json& now) {
  const auto defaults = to_json(RunConfig{});
  for (const auto& [key, value] : now.items()) {
    if (key == "data" || key == "device") continue;  // a run may go on elsewhere
    if (key == "deviations") continue;               // words, which may be improved
    const auto before = begun.find(key);
    if (before != begun.end() && *before == json(value)) continue;
    const bool is_new = key == "data_fingerprint" || key == "class_names" || key == "preprocessing";
    const bool is_default = defaults.contains(key) && defaults.at(key) == value;
    // The run was begun before these were recorded, or before there was the option.
    if (before == begun.end() && (is_new || is_default)) continue;
    const std::string was = before == begun.end() ? "nothing" : shortened(before->dump());
    TORCH_CHECK_VALUE(false, "[tensorion.train] ", folder.string(), " was begun with ",
                      is_recorded(key) ? "other data: " + key : flag_name(key), " ", was, ", got ",
                      shortened(value.dump()),
                      ". Resume with the same, or begin anew in another folder (--out)");
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
