// The options of the optimizer (TENSORION_OPTIONS) as a list, for code that handles all options in the same
// way.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <vector>

#include "tensorion/optimizer.h"

namespace tensorion {

struct Option {
  const char* name;
  c10::TypePtr type;  // the type of its value in archives and in operator schemas
  bool is_step;       // true if it is a member of StepOptions
  c10::IValue (*get)(const TensorionOptions& options);
  void (*set)(TensorionOptions& options, const c10::IValue& value);
  // Throws if the value is not finite or not a known name. If `check_range`, also throws if it is out of
  // range.
  void (*check)(const TensorionOptions& options, bool check_range);
};

// Returns the options in the order of TENSORION_OPTIONS.
const std::vector<Option>& option_table();

}  // namespace tensorion
