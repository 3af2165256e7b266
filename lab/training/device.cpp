#include "lab/training/device.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>

#include "lab/text/usage_error.h"

namespace tensorion::lab {
namespace {

// The devices that torch supports and finds, for example "cpu, cuda:0, cuda:1".
std::string found_devices() {
  std::string names = "cpu";
  const auto type = at::getAccelerator();
  if (!type) return names;
  for (c10::DeviceIndex i = 0; i < at::accelerator::deviceCount(); ++i)
    names += ", " + c10::Device(*type, i).str();
  return names;
}

}  // namespace

c10::Device resolve_device(const std::string& name) {
  const auto accelerator = at::getAccelerator();
  const int count = accelerator ? at::accelerator::deviceCount() : 0;
  if (name == "auto") return count > 0 ? c10::Device(accelerator.value(), 0) : c10::Device(at::kCPU);
  const std::string expected =
      "--device must be auto, cpu, or an accelerator such as cuda, cuda:1, mps or xpu";
  c10::Device device(at::kCPU);
  try {
    device = c10::Device(name);
  } catch (const c10::Error&) {
    throw UsageError(expected + ", got '" + name + "'");
  }
  if (device.is_cpu()) return at::kCPU;
  if (!at::isAccelerator(device.type())) throw UsageError(expected + ", got '" + name + "'");
  TORCH_CHECK_VALUE(count > 0 && device.type() == accelerator.value() && device.index() < count, "--device ",
                    name, " is not available; torch finds ", found_devices());
  return {device.type(), std::max<c10::DeviceIndex>(0, device.index())};
}

Batch to_device(const Batch& batch, c10::Device device) {
  if (device.is_cpu()) return batch;
  return {batch.images.to(device, batch.images.scalar_type(), /*non_blocking=*/true),
          batch.labels.to(device, batch.labels.scalar_type(), /*non_blocking=*/true)};
}

Autocast::Autocast(c10::Device device, const std::string& amp)
    : device_(device.type()),
      was_enabled_(at::autocast::is_autocast_enabled(device_)),
      previous_(at::autocast::get_autocast_dtype(device_)) {
  if (amp == "off") return;
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, amp == "bf16" ? at::kBFloat16 : at::kHalf);
}

Autocast::~Autocast() {
  if (at::autocast::is_autocast_enabled(device_)) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_);
}

}  // namespace tensorion::lab
