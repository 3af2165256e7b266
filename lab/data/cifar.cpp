#include "lab/data/cifar.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPixels = 3 * kCifarSize.height * kCifarSize.width;

// `label_limits` has the number of valid values of each label byte in a record. The last byte is the label
// used.
RawSplit read_records(const std::vector<fs::path>& files, const std::vector<int64_t>& label_limits) {
  const auto label_bytes = static_cast<int64_t>(label_limits.size());
  const int64_t record = label_bytes + kPixels;
  RawSplit out;
  std::vector<at::Tensor> parts;
  for (const auto& path : files) {
    const std::string bytes = read_file(path);
    const auto size = static_cast<int64_t>(bytes.size());
    if (size == 0 || size % record != 0) {
      throw FileError(path, "expected a whole number of records of " + std::to_string(record) +
                                " bytes, got " + std::to_string(size) + " bytes");
    }
    const int64_t count = size / record;
    parts.push_back(at::empty({count, 3, kCifarSize.height, kCifarSize.width}, at::kByte));
    auto* pixels = parts.back().mutable_data_ptr<uint8_t>();
    for (int64_t i = 0; i < count; ++i) {
      const auto* source = reinterpret_cast<const uint8_t*>(bytes.data()) + i * record;
      for (int64_t k = 0; k < label_bytes; ++k) {
        if (source[k] >= label_limits[k]) {
          throw FileError(path, "the label in byte " + std::to_string(k) + " of record " + std::to_string(i) +
                                    " must be in [0, " + std::to_string(label_limits[k]) + "), got " +
                                    std::to_string(source[k]));
        }
      }
      out.labels.push_back(source[label_bytes - 1]);
      std::copy_n(source + label_bytes, kPixels, pixels + i * kPixels);
    }
  }
  out.pixels = at::cat(parts);
  return out;
}

}  // namespace

bool has_cifar10(const fs::path& folder) { return is_file(folder / "data_batch_1.bin"); }

bool has_cifar100(const fs::path& folder) { return is_file(folder / "train.bin"); }

RawSplits read_cifar10(const fs::path& folder) {
  RawSplits out;
  out.classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  std::vector<fs::path> train_files;
  for (int batch = 1; batch <= 5; ++batch) {
    train_files.push_back(folder / ("data_batch_" + std::to_string(batch) + ".bin"));
  }
  out.train = read_records(train_files, {10});
  out.test = read_records({folder / "test_batch.bin"}, {10});
  return out;
}

RawSplits read_cifar100(const fs::path& folder) {
  RawSplits out;
  const fs::path names = folder / "fine_label_names.txt";
  out.classes = read_lines(names);
  while (!out.classes.empty() && out.classes.back().empty()) out.classes.pop_back();
  if (out.classes.size() != 100) {
    throw FileError(names, "expected the names of 100 classes, got " + std::to_string(out.classes.size()));
  }
  out.train = read_records({folder / "train.bin"}, {20, 100});
  out.test = read_records({folder / "test.bin"}, {20, 100});
  return out;
}

}  // namespace tensorion::lab
