#include "lab/data/image_folder.h"

#include <algorithm>

#include "lab/data/image_file.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> list_classes(const fs::path& folder) {
  std::vector<std::string> classes;
  for (const auto& entry : list_folder(folder)) {
    if (entry.is_folder) classes.push_back(entry.name);
  }
  if (classes.empty()) throw FileError(folder, "expected a subfolder for each class, got none");
  return classes;
}

// Returns the first of `names` that is not in `others`, or "". Both are sorted.
std::string first_missing(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  for (const auto& name : names) {
    if (!std::binary_search(others.begin(), others.end(), name)) return name;
  }
  return "";
}

RawSplit list_split(const fs::path& folder, const std::vector<std::string>& classes) {
  RawSplit out;
  for (size_t label = 0; label < classes.size(); ++label) {
    for (auto& file : list_images(folder / classes[label])) {
      out.files.push_back(std::move(file));
      out.labels.push_back(static_cast<int64_t>(label));
    }
  }
  return out;
}

}  // namespace

bool has_image_folder(const fs::path& folder) { return is_folder(folder / "train"); }

RawSplits read_image_folder(const fs::path& folder) {
  const fs::path train = folder / "train";
  const fs::path test = folder / (is_folder(folder / "val") ? "val" : "test");
  if (!is_folder(test)) throw FileError(folder, "expected a subfolder val or test next to train");
  RawSplits out;
  out.classes = list_classes(train);
  const auto test_classes = list_classes(test);
  if (const auto name = first_missing(out.classes, test_classes); !name.empty()) {
    throw FileError(test, "expected a subfolder for class " + name + ", as in train");
  }
  if (const auto name = first_missing(test_classes, out.classes); !name.empty()) {
    throw FileError(test, "class " + name + " has no subfolder in train");
  }
  out.train = list_split(train, out.classes);
  out.test = list_split(test, out.classes);
  return out;
}

std::vector<fs::path> list_images(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : list_folder(folder)) {
    if (entry.is_folder || !is_image_name(entry.name)) {
      throw FileError(folder, "expected only images (.jpg, .jpeg, .png), got " + entry.name);
    }
    files.push_back(folder / entry.name);
  }
  if (files.empty()) throw FileError(folder, "expected the images of a class, got an empty folder");
  return files;
}

}  // namespace tensorion::lab
