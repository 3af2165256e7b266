#include "lab/training/workers.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "lab/text/strings.h"

namespace tensorion::lab {

Workers::Workers(int64_t count, const std::vector<std::string>& more) {
  std::ifstream file("/proc/self/cmdline");
  auto words = split({std::istreambuf_iterator<char>(file), {}}, '\0');
  words.pop_back();  // the command line ends with a separator
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t self = ::getpid();
  for (int64_t i = 0; i < count; ++i) {
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
    if (process > 0) {
      processes_.push_back(process);
      continue;
    }
    // Only async-signal-safe functions may be called between fork and exec.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != self) ::_exit(1);  // the parent ended before prctl was called
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) ::dup2(null, STDOUT_FILENO);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
}

Workers::~Workers() {
  for (const pid_t process : processes_) ::kill(process, SIGTERM);
  wait();
}

void Workers::wait() {
  for (const pid_t process : processes_) {
    while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  processes_.clear();
}

}  // namespace tensorion::lab
