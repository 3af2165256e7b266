// SIGINT, SIGTERM and SIGHUP set a flag that the training loop polls between steps and between test batches.
#pragma once

namespace tensorion::lab {

// While a guard exists, the first signal sets the flag and is acknowledged on the standard error; a second
// SIGINT or SIGTERM ends the program at once. Signals that the program was started to ignore (nohup) stay
// ignored.
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
