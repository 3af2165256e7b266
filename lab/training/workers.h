// --jobs: processes of the program that share the runs of a comparison.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tensorion::lab {

class Workers {
 public:
  // Starts `count` processes with the command line of this process, followed by the arguments in `more`.
  // Their standard output is discarded. They save a checkpoint and stop if this process ends.
  Workers(int64_t count, const std::vector<std::string>& more);
  // Stops the processes that are still running and waits for them.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Waits until all processes have ended.
  void wait();

 private:
  std::vector<pid_t> processes_;
};

}  // namespace tensorion::lab
