// Where a run computes, and in which precision.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

#include "lab/data/data_loader.h"

namespace tensorion::lab {

// "auto" is the accelerator that torch has, or else the CPU; other names are torch's: cpu, cuda, cuda:1, mps,
// xpu. It is an error that says what there is to name a device that is not there.
c10::Device resolve_device(const std::string& name);

// A batch on the device. Copies from pinned memory do not wait (see DataLoaderOptions).
Batch to_device(const Batch& batch, c10::Device device);

// Automatic mixed precision, as torch.autocast, while the object exists: "bf16", "fp16", or "off" for none.
class Autocast {
 public:
  Autocast(c10::Device device, const std::string& amp);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType previous_;
};

}  // namespace tensorion::lab
