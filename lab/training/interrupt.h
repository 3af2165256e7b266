// Ctrl-C and the polite kill, as a wish to stop that a run looks up between two steps.
#pragma once

namespace tensorion::lab {

// While one lives, the first SIGINT or SIGTERM is noted and a second one ends the program at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// The signal that came, 0 where none did.
int interrupt_signal();

}  // namespace tensorion::lab
