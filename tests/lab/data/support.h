// Small data sets that the tests write to disk.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>
// The headers of libjpeg require that size_t and FILE are already declared.
#include <jpeglib.h>

#include "lab/io/file.h"
#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab::testing {

namespace fs = std::filesystem;

using tensorion::testing::expect_close;
using tensorion::testing::expect_error;
using tensorion::testing::generator;

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Random bytes of the given shape.
inline at::Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  return at::randint(0, 256, shape, generator(seed), at::TensorOptions().dtype(at::kByte));
}

// Smooth C x H x W bytes, which JPEG reproduces almost exactly.
inline at::Tensor smooth_image(int64_t channels, int64_t height, int64_t width, double phase = 0) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const auto c = at::arange(channels, options).view({-1, 1, 1});
  const auto y = at::arange(height, options).view({1, -1, 1}) / 12.0;
  const auto x = at::arange(width, options).view({1, 1, -1}) / 9.0;
  return (128 + 100 * at::sin(phase + 2 * c + y) * at::cos(x + c)).to(at::kByte);
}

// The bytes of the tensor in row-major order.
inline std::string bytes_of(const at::Tensor& x) {
  const auto flat = x.contiguous();
  return {reinterpret_cast<const char*>(flat.const_data_ptr<uint8_t>()), static_cast<size_t>(flat.numel())};
}

// Encodes C x H x W bytes as JPEG with the best quality: grayscale (C = 1), RGB (3) or CMYK (4). The file is
// progressive if scans are given.
inline std::string jpeg(const at::Tensor& image, bool adobe_marker = true,
                        const std::vector<jpeg_scan_info>& scans = {}) {
  const auto channels = static_cast<int>(image.size(0));
  auto rows = image.permute({1, 2, 0}).contiguous();
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(image.size(1));
  info.image_width = static_cast<JDIMENSION>(image.size(2));
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  if (!adobe_marker) info.write_Adobe_marker = FALSE;
  if (!scans.empty()) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = rows.mutable_data_ptr<uint8_t>() + info.next_scanline * image.size(2) * channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string out(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return out;
}

// Encodes a tensor of bytes as an IDX file.
inline std::string idx(const at::Tensor& x) {
  std::string out{'\0', '\0', '\x08', static_cast<char>(x.dim())};
  for (const int64_t size : x.sizes()) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(size >> shift & 255);
  }
  return out + bytes_of(x);
}

inline at::Tensor label_bytes(const std::vector<int64_t>& labels) {
  return at::tensor(labels, at::kLong).to(at::kByte);
}

}  // namespace tensorion::lab::testing
