// The safetensors file format for named tensors, used by timm and the Hugging Face Hub.
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//             "__metadata__": {"key": "value", ...}}
//   data      the tensors, row-major and little-endian, without gaps; offsets count from here
//
// The header is validated completely before any tensor is allocated. Errors contain the path of the file and
// the name of the tensor. Files written by this program contain a checksum of all their bytes (checksum.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

namespace tensorion::lab {

using NamedTensors = std::map<std::string, at::Tensor>;
using Metadata = std::map<std::string, std::string>;

// Returns the tensors whose names start with the prefix, with the prefix removed.
NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix);

// The limit of the reference implementation.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

struct SafeTensors {
  NamedTensors tensors;
  Metadata metadata;  // without the checksum
  bool has_checksum = false;
};

// Supports the dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. Throws if the file has a checksum that does
// not match; files written by other programs have no checksum.
SafeTensors read_safetensors(const std::string& path);

// Creates or replaces the file atomically and adds the checksum to the metadata. The bytes depend only on the
// values and the metadata, not on strides or devices.
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace tensorion::lab
