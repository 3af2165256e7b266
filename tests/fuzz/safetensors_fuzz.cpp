// The bytes are a file of weights. If it can be read, writing and reading it again must give the same
// tensors.
#include <ATen/ATen.h>

#include <cstring>

#include "lab/io/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/safetensors_mutator.h"
#include "tests/lab/temporary_folder.h"

namespace {

using namespace tensorion;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::MemoryFile file;
  static const lab::testing::TemporaryFolder folder;
  file.write(data, size);
  lab::SafeTensors read;
  if (!fuzz::succeeds<c10::Error>(file.path(), [&] { read = lab::read_safetensors(file.path()); })) return 0;
  const auto copy = folder.file("copy.safetensors");
  lab::write_safetensors(copy, read.tensors, read.metadata);
  const auto again = lab::read_safetensors(copy);
  fuzz::expect(again.metadata == read.metadata && again.tensors.size() == read.tensors.size(),
               "not the same");
  for (const auto& [name, tensor] : read.tensors) {
    fuzz::expect(same_bits(again.tensors.at(name), tensor), "tensor " + name + " changed");
  }
  return 0;
}
