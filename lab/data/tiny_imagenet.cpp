#include "lab/data/tiny_imagenet.h"

#include <algorithm>
#include <map>

#include "lab/data/image_folder.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> read_classes(const fs::path& path) {
  std::vector<std::string> classes = read_lines(path);
  std::erase(classes, "");
  std::sort(classes.begin(), classes.end());
  if (classes.empty()) throw FileError(path, "expected one WordNet id per line, got none");
  const auto twice = std::adjacent_find(classes.begin(), classes.end());
  if (twice != classes.end()) throw FileError(path, "class " + *twice + " appears twice");
  return classes;
}

// Maps file names to labels.
std::map<std::string, int64_t> read_annotations(const fs::path& path,
                                                const std::vector<std::string>& classes) {
  std::map<std::string, int64_t> labels;
  const auto lines = read_lines(path);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const auto fail = [&](const std::string& what) -> FileError {
      return {path, "line " + std::to_string(i + 1) + ": " + what};
    };
    const size_t first = lines[i].find('\t');
    if (first == std::string::npos)
      throw fail("expected a file name and a class separated by a tab, got " + lines[i]);
    const std::string file = lines[i].substr(0, first);
    const std::string wnid = lines[i].substr(first + 1, lines[i].find('\t', first + 1) - first - 1);
    const auto found = std::lower_bound(classes.begin(), classes.end(), wnid);
    if (found == classes.end() || *found != wnid) throw fail("class " + wnid + " is not in wnids.txt");
    if (!labels.emplace(file, found - classes.begin()).second) throw fail(file + " appears twice");
  }
  return labels;
}

}  // namespace

bool has_tiny_imagenet(const fs::path& folder) { return is_file(folder / "wnids.txt"); }

RawSplits read_tiny_imagenet(const fs::path& folder) {
  RawSplits out;
  out.classes = read_classes(folder / "wnids.txt");
  for (size_t label = 0; label < out.classes.size(); ++label) {
    for (auto& file : list_images(folder / "train" / out.classes[label] / "images")) {
      out.train.files.push_back(std::move(file));
      out.train.labels.push_back(static_cast<int64_t>(label));
    }
  }
  const fs::path annotations = folder / "val" / "val_annotations.txt";
  auto labels = read_annotations(annotations, out.classes);
  for (auto& file : list_images(folder / "val" / "images")) {
    const auto label = labels.extract(file.filename().string());
    if (label.empty()) throw FileError(annotations, "expected a line for " + file.string() + ", got none");
    out.test.files.push_back(std::move(file));
    out.test.labels.push_back(label.mapped());
  }
  for (size_t label = 0; label < out.classes.size(); ++label) {
    if (std::find(out.test.labels.begin(), out.test.labels.end(), static_cast<int64_t>(label)) ==
        out.test.labels.end()) {
      throw FileError(annotations, "expected an image of class " + out.classes[label] + ", got none");
    }
  }
  if (!labels.empty())
    throw FileError(folder / "val" / "images" / labels.begin()->first,
                    "the file is missing, but val_annotations.txt lists it");
  return out;
}

}  // namespace tensorion::lab
