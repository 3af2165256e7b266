#include "lab/data/dataset.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include "lab/data/image_file.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileChannels = 3;

void check_size(const fs::path& path, ImageSize found, const std::optional<ImageSize>& expected) {
  if (!expected || found == *expected) return;
  const auto text = [](ImageSize size) {
    return std::to_string(size.height) + " x " + std::to_string(size.width);
  };
  throw FileError(path, "expected an image of " + text(*expected) + " pixels (height x width), got " +
                            text(found) + " (--image-size resizes all images)");
}

template <typename Body>
void for_each_file(const std::vector<fs::path>& files, const Body& body) {
  at::parallel_for(0, static_cast<int64_t>(files.size()), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i, files[i]);
  });
}

at::Tensor decode_files(const std::vector<fs::path>& files, ImageSize size) {
  auto pixels =
      at::empty({static_cast<int64_t>(files.size()), kFileChannels, size.height, size.width}, at::kByte);
  auto* out = pixels.mutable_data_ptr<uint8_t>();
  for_each_file(files, [&](int64_t i, const fs::path& path) {
    const std::string bytes = read_file(path);
    decode_image(bytes, path, [&](ImageSize found) {
      check_size(path, found, size);
      return out + i * kFileChannels * size.height * size.width;
    });
  });
  return pixels;
}

int64_t total_bytes(const std::vector<fs::path>& files) {
  int64_t total = 0;
  for (const auto& path : files) {
    std::error_code error;
    total += static_cast<int64_t>(fs::file_size(path, error));
    if (error) throw FileError(path, "cannot read the file: " + error.message());
  }
  return total;
}

}  // namespace

ImageView Dataset::image(int64_t index, std::vector<uint8_t>& buffer) const {
  if (pixels.defined()) {
    const ImageSize own{pixels.size(2), pixels.size(3)};
    return {pixels.const_data_ptr<uint8_t>() + index * channels * own.height * own.width, channels, own};
  }
  const ImageFile& file = (*files)[index];
  std::string fresh;
  if (file.bytes.empty()) fresh = read_file(file.path);
  ImageSize found;
  decode_image(file.bytes.empty() ? fresh : file.bytes, file.path, [&](ImageSize own) {
    found = own;
    check_size(file.path, found, size);
    buffer.resize(static_cast<size_t>(channels * found.height * found.width));
    return buffer.data();
  });
  return {buffer.data(), channels, found};
}

int64_t default_memory_limit() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) / 4 * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

Dataset make_dataset(const RawSplit& split, std::optional<ImageSize> size, int64_t memory_limit) {
  Dataset out;
  out.labels = at::tensor(split.labels, at::kLong);
  out.size = size;
  if (split.pixels.defined()) {
    out.pixels = split.pixels.contiguous();
    out.channels = out.pixels.size(1);
    return out;
  }
  out.channels = kFileChannels;
  const auto count = static_cast<int64_t>(split.files.size());
  if (size && count * kFileChannels * size->height * size->width <= memory_limit) {
    out.pixels = decode_files(split.files, *size);
    return out;
  }
  const bool keep_bytes = total_bytes(split.files) <= memory_limit;
  auto files = std::make_shared<std::vector<ImageFile>>(count);
  for_each_file(split.files, [&](int64_t i, const fs::path& path) {
    (*files)[i].path = path;
    if (!keep_bytes) return;
    (*files)[i].bytes = read_file(path);
    check_size(path, image_size((*files)[i].bytes, path), size);
  });
  out.files = std::move(files);
  return out;
}

}  // namespace tensorion::lab
