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
  const ordered_json begin{
      {"problem", problem}, {"optimizer", run.optimizer}, {"lr", run.lr}, {"seed", run.seed}};
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

LaplaceRecord::LaplaceRecord(std::filesystem::path file, int64_t steps) : file_(std::move(file)) {
  if (!std::filesystem::exists(file_)) return;
  read_json_lines(file_, [&](const json& parsed) {
    const Key key{parsed.at("problem").get<std::string>(), parsed.at("optimizer").get<std::string>(),
                  parsed.at("lr").get<double>(), parsed.at("seed").get<int64_t>()};
    auto& run = runs_[key];
    run.optimizer = std::get<1>(key);
    run.lr = std::get<2>(key);
    run.seed = std::get<3>(key);
    if (parsed.contains("diverged")) {
      run.diverged = true;
    } else {
      run.points.push_back(laplace_point_from_json(parsed));
    }
  });
  std::erase_if(runs_, [&](const auto& entry) {
    const auto& run = entry.second;
    return !run.diverged && run.points.back().step != steps;
  });
  std::string whole;
  for (const auto& [key, run] : runs_) whole += to_lines(std::get<0>(key), run);
  write_file(file_, whole);
}

const LaplaceRun* LaplaceRecord::find(const LaplaceProblem& problem, const std::string& optimizer, double lr,
                                      int64_t seed) const {
  const auto found = runs_.find({problem.str(), optimizer, lr, seed});
  return found == runs_.end() ? nullptr : &found->second;
}

const LaplaceRun& LaplaceRecord::add(const LaplaceProblem& problem, const LaplaceRun& run) {
  append_file(file_, to_lines(problem.str(), run));
  return runs_[{problem.str(), run.optimizer, run.lr, run.seed}] = run;
}

}  // namespace tensorion::lab
