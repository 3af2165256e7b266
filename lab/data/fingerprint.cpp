#include "lab/data/fingerprint.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lab/io/checksum.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

constexpr int64_t kMaxFullBytes = int64_t{1} << 30;  // above this size, only a sample of the files is read
constexpr size_t kSampledFiles = 1000;

void add_text(Checksum& sum, const std::string& text) { sum.add(text.c_str(), text.size() + 1); }

void add_files(Checksum& sum, const std::vector<std::filesystem::path>& files,
               const std::filesystem::path& folder) {
  int64_t total = 0;
  for (const auto& file : files) {
    std::error_code error;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file, error));
    if (error) throw FileError(file, "cannot read the file: " + error.message());
    add_text(sum, file.lexically_relative(folder).string());
    add_text(sum, std::to_string(bytes));
    total += bytes;
  }
  const size_t step = total <= kMaxFullBytes ? 1 : std::max<size_t>(1, files.size() / kSampledFiles);
  for (size_t i = 0; i < files.size(); i += step) {
    const auto content = read_file(files[i]);
    sum.add(content.data(), content.size());
  }
}

std::string checksum(const RawSplit& split, const RawSplits& data, const std::filesystem::path& folder) {
  Checksum sum;
  for (const auto& name : data.classes) add_text(sum, name);
  sum.add(split.labels.data(), split.labels.size() * sizeof(int64_t));
  if (split.pixels.defined()) {
    const auto pixels = split.pixels.contiguous();
    sum.add(pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel()));
  } else {
    add_files(sum, split.files, folder);
  }
  return sum.str();
}

}  // namespace

std::string fingerprint(const RawSplits& data, const std::filesystem::path& folder) {
  return checksum(data.train, data, folder) + "-" + checksum(data.test, data, folder);
}

}  // namespace tensorion::lab
