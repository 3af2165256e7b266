// The options of the optimizer as a list: TENSORION_OPTIONS, for code that treats all of them alike.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <vector>

#include "tensorion/optimizer.h"

namespace tensorion {

struct Option {
  const char* name;
  c10::TypePtr type;  // of its value in an archive, and as an argument of an operator
  bool is_step;       // whether StepOptions holds it
  c10::IValue (*get)(const TensorionOptions& options);
  void (*set)(TensorionOptions& options, const c10::IValue& value);
  // Throws if it is not finite or not a known name; with `ranges`, also if it is out of range.
  void (*check)(const TensorionOptions& options, bool ranges);
};

const std::vector<Option>& option_table();

}  // namespace tensorion
