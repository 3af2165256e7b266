// The device and the precision of a run.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

#include "lab/data/data_loader.h"

namespace tensorion::lab {

// Parses the name of a device: cpu, cuda, cuda:1, mps, xpu, or "auto" for the accelerator if there is one and
// the CPU otherwise. If the device is not available, the error lists those that are.
c10::Device resolve_device(const std::string& name);

// Copies a batch to the device. Copies from pinned memory are asynchronous (see DataLoaderOptions).
Batch to_device(const Batch& batch, c10::Device device);

// A guard for automatic mixed precision, like torch.autocast: "bf16", "fp16" or "off".
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
