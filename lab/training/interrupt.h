// SIGINT, SIGTERM and SIGHUP set a flag that the training loop polls between steps and between test batches.
#pragma once

namespace tensorion::lab {

// While a guard exists, the first signal sets the flag and prints a message to standard error. A second
// SIGINT or SIGTERM ends the program immediately. Signals that were ignored when the program started, for
// example by nohup, stay ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// Returns the signal that arrived since the last guard was constructed, or 0 if there was none.
int interrupt_signal();

}  // namespace tensorion::lab
