#include "lab/experiments/laplace_record.h"

#include <nlohmann/json.hpp>

#include "lab/io/atomic_file.h"
#include "lab/io/json_file.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A run that diverged ends with a line that says so.
std::string to_lines(const std::string& problem, const LaplaceRun& run) {
  std::string lines;
  const ordered_json begin{{"problem", problem},
                           {"optimizer", run.key.optimizer},
                           {"steps", run.key.steps},
                           {"lr", run.key.lr},
                           {"seed", run.key.seed}};
  for (const auto& point : run.points) {
    auto line = begin;
    line.update(to_json(point));
    lines += line.dump() + '\n';
  }
  if (run.diverged) {
    auto line = begin;
    line["diverged"] = true;
    lines += line.dump() + '\n';
  }
  return lines;
}

}  // namespace

LaplaceRecord::LaplaceRecord(std::filesystem::path file) : file_(std::move(file)) {
  if (!std::filesystem::exists(file_)) return;
  read_json_lines(file_, [&](const json& parsed) {
    const LaplaceRunKey key{.optimizer = parsed.at("optimizer").get<std::string>(),
                            .steps = parsed.at("steps").get<int64_t>(),
                            .lr = parsed.at("lr").get<double>(),
                            .seed = parsed.at("seed").get<int64_t>()};
    auto& run = runs_[{parsed.at("problem").get<std::string>(), key}];
    run.key = key;
    if (parsed.contains("diverged")) {
      run.diverged = true;
    } else {
      run.points.push_back(laplace_point_from_json(parsed));
    }
  });
  std::erase_if(runs_, [](const auto& entry) {
    const auto& run = entry.second;
    return !run.diverged && run.points.back().step != run.key.steps;
  });
  std::string whole;
  for (const auto& [key, run] : runs_) whole += to_lines(key.first, run);
  write_file(file_, whole);
}

const LaplaceRun* LaplaceRecord::find(const LaplaceProblem& problem, const LaplaceRunKey& key) const {
  const auto found = runs_.find({problem.str(), key});
  return found == runs_.end() ? nullptr : &found->second;
}

const LaplaceRun& LaplaceRecord::add(const LaplaceProblem& problem, const LaplaceRun& run) {
  append_file(file_, to_lines(problem.str(), run));
  return runs_[{problem.str(), run.key}] = run;
}

}  // namespace tensorion::lab
