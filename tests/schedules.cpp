// Prints schedules for python/tests/test_cpp_schedules.py. For each step it prints a line with the factor of
// the learning rate and the momentum (or nan), and an empty line after each schedule.
#include <cmath>
#include <cstdio>

#include "tensorion/schedule.h"

int main() {
  using namespace tensorion;
  const auto print = [](const Schedule& schedule, int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      std::printf("%.17g %.17g\n", schedule.lr(step),
                  schedule.momentum ? schedule.momentum(step) : std::nan(""));
    }
    std::printf("\n");
  };
  print(constant(), 3);
  print(multistep({2, 5, 5}, 0.5), 8);
  print(cosine(20), 20);
  print(cosine(20, {.warmup_steps = 5}), 20);
  print(cosine(30, {.warmup_steps = 7, .warmup_start = 0.01, .final = 0.1}), 30);
  print(onecycle(25), 25);
  print(onecycle(2), 2);
  print(onecycle(40, {.pct_start = 0.2, .anneal_strategy = "linear", .base_momentum = 0.5, .div_factor = 10}),
        40);
  print(onecycle(41, {.pct_start = 0.25, .final_div_factor = 100, .three_phase = true}), 41);
  print(onecycle(30, {.cycle_momentum = false}), 30);
}
