// How far a run is, for people: a live line on a terminal, otherwise a line for each epoch and, in long
// epochs, one every half a minute.
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
  // Lines that a terminal shows above the live one, in place of a line for each epoch.
  using Table = std::function<std::vector<std::string>(const Trainer&)>;

  // Every line begins with `label`. The terminal must outlive this object.
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
  Clock::time_point start_ = Clock::now();  // of this process's part of the run
  Clock::time_point shown_;                 // when there was the last line
  int64_t steps_ = 0;                       // since the start
  int64_t skipped_ = 0;                     // steps that were said to be skipped
};

// 0:07, 12:34, 1:02:03.
std::string duration(double seconds);

// "epoch 2/10 [=====>    ] 120/391  loss 0.4123  1234 images/s  optimizer 12 %  ETA 1:23"
// In fewer than `width` characters if it can.
std::string progress_line(const Trainer& trainer, double seconds_left, int width);

// "epoch 2/10  lr 0.05  train loss 0.4123  test loss 0.4567  accuracy 85.12 %  0:12, 23 % in the optimizer"
std::string epoch_line(const EpochMetrics& metrics, int64_t epochs);

}  // namespace tensorion::lab
