// safetensors files: named tensors, as timm and the model hubs store them.
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//             "__metadata__": {"key": "value", ...}}
//   data      the tensors, row-major and little-endian, without holes; offsets count from here
//
// A file is checked in full before any tensor is allocated. Errors name the
// file and the tensor. Files written here hold a checksum of all their bytes:
// see checksum.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

namespace tensorion::lab {

using NamedTensors = std::map<std::string, at::Tensor>;
using Metadata = std::map<std::string, std::string>;

// As in the other readers of the format.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

struct SafeTensors {
  NamedTensors tensors;
  Metadata metadata;  // without the checksum
  bool has_checksum = false;
};

// Dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. A file whose checksum does not fit is damaged, and refused;
// files of other programs have none.
SafeTensors read_safetensors(const std::string& path);

// The same tensors and metadata always give the same bytes, whatever the strides and the device.
// Replaces a file at `path` in one step, or leaves it alone. Adds the checksum to the metadata.
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace tensorion::lab
