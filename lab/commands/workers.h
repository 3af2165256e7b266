// --jobs: more processes of the program, which share the runs of a comparison.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tensorion::lab {

class Workers {
 public:
  // Starts `count` processes with the command line of this one and `more` arguments. Their standard output is
  // dropped. They stop with a checkpoint if this process ends.
  Workers(int64_t count, const std::vector<std::string>& more);
  // Stops those that are still at work, and waits for them.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Waits until all of them have ended.
  void wait();

 private:
  std::vector<pid_t> processes_;
};

}  // namespace tensorion::lab
