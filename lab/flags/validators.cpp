#include "lab/flags/validators.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

namespace tensorion::lab {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 53;

}  // namespace

CLI::Validator positive_count() { return CLI::Range(int64_t{1}, kMaxCount, "POSITIVE"); }
CLI::Validator non_negative_count() { return CLI::Range(int64_t{0}, kMaxCount, "NONNEGATIVE"); }
CLI::Validator thread_count() { return CLI::Range(int64_t{1}, int64_t{4096}, "POSITIVE"); }

}  // namespace tensorion::lab
