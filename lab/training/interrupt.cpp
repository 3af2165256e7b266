#include "lab/training/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <string_view>

namespace tensorion::lab {
namespace {

volatile std::sig_atomic_t received = 0;

// The signal handler. It may call only async-signal-safe functions.
void on_signal(int signal) {
  if (received == 0) {
    constexpr std::string_view kText =
        "\nsaving the progress before stopping; press Ctrl-C again to stop immediately\n";
    if (::write(STDERR_FILENO, kText.data(), kText.size()) < 0) {
    }  // ignored: the terminal may be closed
  }
  received = signal;
}

void set_handler(int signal, void (*handler)(int), int flags) {
  struct sigaction now{};
  ::sigaction(signal, nullptr, &now);
  if (now.sa_handler == SIG_IGN) return;  // for example under nohup
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  received = 0;
  for (const int signal : {SIGINT, SIGTERM})
    set_handler(signal, on_signal, static_cast<int>(SA_RESTART | SA_RESETHAND));
  set_handler(SIGHUP, on_signal, SA_RESTART);  // a lost connection may send SIGHUP several times
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) set_handler(signal, SIG_DFL, 0);
}

int interrupt_signal() { return received; }

}  // namespace tensorion::lab
