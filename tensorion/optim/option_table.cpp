#include "tensorion/optim/option_table.h"

#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace tensorion {
namespace {

using c10::IValue;
using Betas = TensorionOptions::Betas;

// Options that files of earlier versions do not have. They keep their defaults if they are missing.
constexpr std::array<std::string_view, 3> kMayBeMissing{"online_interval", "batch_modes", "split_sizes"};

// ---- Conversion to the types that archives and operators support

template <typename T>
struct Stored {
  using Type = T;
  static T from(const T& value) { return value; }
  static T to(T stored) { return stored; }
};

template <>
struct Stored<UnfoldingStrategy> {
  using Type = std::string;
  static std::string from(const UnfoldingStrategy& value) { return value.str(); }
  static UnfoldingStrategy to(const std::string& stored) { return UnfoldingStrategy::parse(stored); }
};

template <>
struct Stored<Coefficients> {
  using Type = std::vector<double>;
  static std::vector<double> from(const Coefficients& value) { return flatten(value); }
  static Coefficients to(const std::vector<double>& stored) { return unflatten(stored); }
};

template <typename T>
struct Stored<std::optional<T>> {
  using Type = std::optional<typename Stored<T>::Type>;
  static Type from(const std::optional<T>& value) {
    return value ? Type(Stored<T>::from(*value)) : std::nullopt;
  }
  static std::optional<T> to(const Type& stored) {
    return stored ? std::optional<T>(Stored<T>::to(*stored)) : std::nullopt;
  }
};

// ---- Checks of ranges, by their names in TENSORION_OPTIONS

// Calls check(number) for each number in the value of an option.
template <typename Check>
void for_each_number(double value, Check check) {
  check(value);
}
template <typename Check>
void for_each_number(const std::optional<double>& value, Check check) {
  if (value) check(*value);
}
template <typename Check>
void for_each_number(const Betas& value, Check check) {
  check(std::get<0>(value));
  check(std::get<1>(value));
}

void check_finite(const char* name, double value) {
  TORCH_CHECK_VALUE(std::isfinite(value), "[tensorion.Tensorion] ", name, " must be finite, got ", value);
}

constexpr auto any_value = [](const char* /*name*/, const auto& /*value*/, bool /*check_range*/) {};

constexpr auto non_negative = [](const char* name, const auto& value, bool check_range) {
  for_each_number(value, [&](double number) {
    if (!check_range) return check_finite(name, number);
    TORCH_CHECK_VALUE(number >= 0 && std::isfinite(number), "[tensorion.Tensorion] ", name,
                      " must be finite and not negative, got ", number);
  });
};

constexpr auto in_unit_interval = [](const char* name, const auto& value, bool check_range) {
  for_each_number(value, [&](double number) {
    if (!check_range) return check_finite(name, number);
    TORCH_CHECK_VALUE(number >= 0 && number < 1, "[tensorion.Tensorion] ", name, " must be in [0, 1), got ",
                      number);
  });
};

constexpr auto at_least_one = [](const char* name, int64_t value, bool /*check_range*/) {
  TORCH_CHECK_VALUE(value >= 1, "[tensorion.Tensorion] ", name, " must be at least 1, got ", value);
};

// The value must be one of these names. An empty name is allowed but is not listed in error messages.
class one_of {
 public:
  template <typename... Names>
  explicit one_of(Names... names) : names_{names...} {}

  void operator()(const char* name, const std::string& value, bool /*check_range*/) const {
    TORCH_CHECK_VALUE(std::count(names_.begin(), names_.end(), value) > 0, "[tensorion.Tensorion] ", name,
                      " must be ", listed({}), ", got '", value, "'");
  }
  void operator()(const char* name, const std::optional<std::string>& value, bool /*check_range*/) const {
    TORCH_CHECK_VALUE(!value || std::count(names_.begin(), names_.end(), *value) > 0,
                      "[tensorion.Tensorion] ", name, " must be ", listed({"nothing"}), ", got '",
                      value.value_or(""), "'");
  }

 private:
  // Returns "'a', 'b' or 'c'". `more` is appended to the list without quotes.
  std::string listed(const std::vector<std::string>& more) const {
    std::vector<std::string> quoted;
    for (const auto& name : names_) {
      if (!name.empty()) quoted.push_back("'" + name + "'");
    }
    quoted.insert(quoted.end(), more.begin(), more.end());
    const auto last = quoted.back();
    quoted.pop_back();
    return c10::Join(", ", quoted) + " or " + last;
  }

  std::vector<std::string> names_;
};

}  // namespace

const std::vector<Option>& option_table() {
#define TENSORION_ENTRY(type, name, initial, range, ...)                                          \
  Option{                                                                                         \
      #name,                                                                                      \
      c10::getTypePtr<Stored<type>::Type>(),                                                      \
      __VA_OPT__(true ||) false,                                                                  \
      [](const TensorionOptions& options) { return IValue(Stored<type>::from(options.name())); }, \
      [](TensorionOptions& options, const IValue& value) {                                        \
        options.name(Stored<type>::to(value.to<Stored<type>::Type>()));                           \
      },                                                                                          \
      [](const TensorionOptions& options, bool check_range) { range(#name, options.name(), check_range); }},
  static const std::vector<Option> table{TENSORION_OPTIONS(TENSORION_ENTRY)};
#undef TENSORION_ENTRY
  return table;
}

void TensorionOptions::check() const {
  for (const auto& option : option_table()) option.check(*this, true);
  step_options().check();
}

void TensorionOptions::check_step() const {
  step_options().check();
  for (const auto& option : option_table()) option.check(*this, false);
}

StepOptions TensorionOptions::step_options() const {
  StepOptions options;
#define TENSORION_ASSIGN(type, name, initial, range, ...) __VA_OPT__(options.__VA_ARGS__ = name();)
  TENSORION_OPTIONS(TENSORION_ASSIGN)
#undef TENSORION_ASSIGN
  return options;
}

bool TensorionOptions::keeps_unfolding() const {
  return algorithm() == "tensorion" && unfolding().is_online() && online_interval() > 1;
}

std::vector<int64_t> TensorionOptions::choice_shape(at::IntArrayRef shape) const {
  const auto slicing = step_options().slicing;
  return slicing.is_whole() ? std::vector<int64_t>{} : std::vector<int64_t>{slicing.count(shape)};
}

void TensorionOptions::serialize(torch::serialize::OutputArchive& archive) const {
  for (const auto& option : option_table()) archive.write(option.name, option.get(*this));
}

void TensorionOptions::serialize(torch::serialize::InputArchive& archive) {
  for (const auto& option : option_table()) {
    IValue value;
    const bool is_saved = archive.try_read(option.name, value);
    if (!is_saved && std::count(kMayBeMissing.begin(), kMayBeMissing.end(), option.name) > 0) continue;
    TORCH_CHECK_VALUE(is_saved, "[tensorion.Tensorion] expected '", option.name,
                      "' in the saved options, got none");
    option.set(*this, value);
  }
}

}  // namespace tensorion
