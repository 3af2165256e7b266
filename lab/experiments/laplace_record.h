// Stores finished runs on disk, one line for each recorded point, so that a resumed command does not repeat
// them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "lab/experiments/laplace_run.h"

namespace tensorion::lab {

class LaplaceRecord {
 public:
  // Reads the complete runs of the file if it exists. An incomplete run, which a killed program may leave, is
  // removed from the file.
  explicit LaplaceRecord(std::filesystem::path file);

  // Returns null if the file does not contain the run.
  const LaplaceRun* find(const LaplaceProblem& problem, const LaplaceRunKey& key) const;

  // Appends the run to the file immediately.
  const LaplaceRun& add(const LaplaceProblem& problem, const LaplaceRun& run);

 private:
  std::filesystem::path file_;
  std::map<std::pair<std::string, LaplaceRunKey>, LaplaceRun> runs_;
};

}  // namespace tensorion::lab
