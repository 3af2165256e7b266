#include "lab/training/result_folder.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "lab/io/json_file.h"
#include "lab/text/strings.h"
#include "lab/text/usage_error.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kConfig[] = "config.json";
constexpr char kSummary[] = "summary.json";
constexpr char kMetrics[] = "metrics.jsonl";

const char* command_of(ResultKind kind) {
  switch (kind) {
    case ResultKind::kRun: return "tensorion train";
    case ResultKind::kComparison: return "tensorion compare";
    case ResultKind::kLaplace: return "tensorion laplace";
    case ResultKind::kTightness: return "tensorion tightness";
  }
  return "";
}

std::optional<ResultKind> kind_by_config(const json& config) {
  const auto& keys = config.get_ref<const json::object_t&>();
  if (keys.contains("problems")) return ResultKind::kLaplace;
  if (keys.contains("optimizer") && keys.contains("dataset")) return ResultKind::kRun;
  return std::nullopt;
}

std::optional<ResultKind> kind_by_summary(const json& summary) {
  const auto& keys = summary.get_ref<const json::object_t&>();
  if (const auto experiment = keys.find("experiment"); experiment != keys.end()) {
    if (experiment->second == "laplace") return ResultKind::kLaplace;
    if (experiment->second == "tightness") return ResultKind::kTightness;
    return std::nullopt;
  }
  if (keys.contains("optimizers") && keys.contains("runs")) return ResultKind::kComparison;
  return std::nullopt;
}

// Returns the first result file in the folder, or an empty path if there are no results.
fs::path first_result(const fs::path& folder) {
  for (const char* name : {kConfig, kSummary, kMetrics, "weights.safetensors", "checkpoint.safetensors",
                           "checkpoint.previous.safetensors"}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  return {};
}

// Returns nullopt if the kind of the results is unknown.
std::optional<ResultKind> find_kind(const fs::path& folder) {
  std::optional<ResultKind> kind;
  if (fs::exists(folder / kConfig)) {
    read_json(folder / kConfig, [&](const json& value) { kind = kind_by_config(value); });
  } else if (fs::exists(folder / kSummary)) {
    read_json(folder / kSummary, [&](const json& value) { kind = kind_by_summary(value); });
  } else if (fs::exists(folder / kMetrics) && fs::exists(folder / "run" / kConfig)) {
    kind = ResultKind::kTightness;  // unfinished: it writes the summary at the end
  }
  return kind;
}

}  // namespace

fs::path result_path(const fs::path& given) {
  if (given.empty()) throw UsageError("--out must not be empty");
  if (!is_utf8(given.string())) {
    throw UsageError("--out must be valid UTF-8, got '" + shortened(given.string()) + "'");
  }
  auto path = given.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "." || path.filename() == "..") {
    path = fs::absolute(path).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
  }
  return path;
}

void check_owner(const fs::path& folder, ResultKind kind, bool resume) {
  const auto file = first_result(folder);
  if (file.empty()) return;
  const auto owner = find_kind(folder);
  TORCH_CHECK_VALUE(owner, folder.string(), " contains ", file.filename().string(),
                    ", but no complete results of this program; choose a different folder with --out");
  TORCH_CHECK_VALUE(*owner == kind, folder.string(), " contains results of `", command_of(*owner),
                    "`; choose a different folder with --out");
  TORCH_CHECK_VALUE(resume, folder.string(), " already contains ",
                    kind == ResultKind::kRun ? "a run" : "results",
                    "; continue with --resume, or choose a different folder with --out");
}

FolderBusy::FolderBusy(const fs::path& folder)
    : std::runtime_error("[tensorion.train] another process is writing to " + folder.string()) {}

FolderLock::FolderLock(const fs::path& folder, bool wait)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_CLOEXEC)) {
  TORCH_CHECK(descriptor_ >= 0, "[tensorion.train] cannot open the folder ", folder.string());
  if (::flock(descriptor_, wait ? LOCK_EX : LOCK_EX | LOCK_NB) == 0) return;
  ::close(descriptor_);
  throw FolderBusy(folder);
}

FolderLock::~FolderLock() { ::close(descriptor_); }

}  // namespace tensorion::lab
