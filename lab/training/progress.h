// Shows the progress of a run. A terminal gets a line that is updated in place. A file or a pipe gets a line
// per epoch and, in long epochs, a line every 30 seconds.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lab/text/terminal.h"
#include "lab/training/trainer.h"

namespace tensorion::lab {

class Progress : public TrainingObserver {
 public:
  // Returns lines that a terminal shows above the progress line instead of printing a line per epoch.
  using Table = std::function<std::vector<std::string>(const Trainer&)>;

  // Every line starts with `label`. The terminal must outlive this object.
  Progress(Terminal& terminal, std::string label, Table table = nullptr);

  void after_step(const Trainer& trainer) override;
  void before_test(const Trainer& trainer) override;
  void after_epoch(const Trainer& trainer) override;

 private:
  using Clock = std::chrono::steady_clock;

  void show(const Trainer& trainer, const std::string& line);

  Terminal& terminal_;
  std::string label_;
  Table table_;
  Clock::time_point start_ = Clock::now();  // when this process started or resumed the run
  Clock::time_point shown_;                 // when the last line was shown
  int64_t steps_ = 0;                       // since start_
  int64_t skipped_ = 0;                     // skipped steps that were already reported
};

// Formats a duration: 0:07, 12:34, 1:02:03.
std::string duration(double seconds);

// Example: "epoch 2/10 [=====>    ] 120/391  loss 0.4123  1234 images/s  optimizer 12 %  ETA 1:23"
// Parts are omitted if the line does not fit into `width`.
std::string progress_line(const Trainer& trainer, double seconds_left, int width);

// Example: "epoch 2/10  lr 0.05  train loss 0.4123  test loss 0.4567  accuracy 85.12 %  0:12, 23 % in the
// optimizer"
std::string epoch_line(const EpochMetrics& metrics, int64_t epochs);

}  // namespace tensorion::lab
