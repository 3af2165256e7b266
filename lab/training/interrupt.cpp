#include "lab/training/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <string_view>

namespace tensorion::lab {
namespace {

volatile std::sig_atomic_t received = 0;

// Only what a signal handler may call.
void note(int signal) {
  if (received == 0) {
    constexpr std::string_view kText =
        "\nstopping as soon as the work so far is saved; a second Ctrl-C stops at once\n";
    if (::write(STDERR_FILENO, kText.data(), kText.size()) < 0) {
    }  // the terminal may be gone
  }
  received = signal;
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction now{};
  ::sigaction(signal, nullptr, &now);
  if (now.sa_handler == SIG_IGN) return;  // nohup, for one
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  received = 0;
  for (const int signal : {SIGINT, SIGTERM})
    handle(signal, note, static_cast<int>(SA_RESTART | SA_RESETHAND));
  handle(SIGHUP, note, SA_RESTART);  // a lost connection may send several
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, SIG_DFL, 0);
}

int interrupt_signal() { return received; }

}  // namespace tensorion::lab
