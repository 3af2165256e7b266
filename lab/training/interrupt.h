// SIGINT and SIGTERM set a flag that the training loop polls between steps.
#pragma once

namespace tensorion::lab {

// While a guard exists, the first SIGINT or SIGTERM sets the flag, and a second one ends the program at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// The signal that arrived since the last guard was constructed; 0 if none did.
int interrupt_signal();

}  // namespace tensorion::lab
