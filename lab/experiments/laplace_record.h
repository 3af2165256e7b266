// The runs of a sweep on disk, a line for each recorded step: what is there need not be run again.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include "lab/experiments/laplace_run.h"

namespace tensorion::lab {

class LaplaceRecord {
 public:
  // Of runs of so many steps. Where the file is there already its whole runs are kept; half of one, as a
  // program that was killed may leave it, is not.
  LaplaceRecord(std::filesystem::path file, int64_t steps);

  // The run, if it is there.
  const LaplaceRun* find(const LaplaceProblem& problem, const std::string& optimizer, double lr,
                         int64_t seed) const;

  // Added to the file at once.
  const LaplaceRun& add(const LaplaceProblem& problem, const LaplaceRun& run);

 private:
  using Key = std::tuple<std::string, std::string, double, int64_t>;

  std::filesystem::path file_;
  std::map<Key, LaplaceRun> runs_;
};

}  // namespace tensorion::lab
