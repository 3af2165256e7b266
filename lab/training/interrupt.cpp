#include "lab/training/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace tensorion::lab {
namespace {

volatile std::sig_atomic_t received = 0;

void note(int signal) { received = signal; }

void handle(int signal, void (*handler)(int), int flags) {
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
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, SIG_DFL, 0);
}

int interrupt_signal() { return received; }

}  // namespace tensorion::lab
