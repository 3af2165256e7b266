#include "lab/training/progress.h"

#include "tests/support.h"

namespace tensorion::lab {
namespace {

TEST(Progress, EpochLineReportsWaitingForData) {
  EpochMetrics metrics{.epoch = 2, .lr = 0.1, .train_loss = 1.5, .test_loss = 1.25, .test_accuracy = 0.5};
  metrics.seconds = 90;
  metrics.optimizer_seconds = 9;
  metrics.data_seconds = 4;
  const std::string line =
      "epoch 2/3  lr 0.1  train loss 1.5000  test loss 1.2500  accuracy 50.00 %  1:30, 10 % in the optimizer";
  EXPECT_EQ(epoch_line(metrics, 3), line);
  metrics.data_seconds = 18;
  EXPECT_EQ(epoch_line(metrics, 3), line + ", 20 % waiting for data (--workers)");
}

TEST(Progress, FormatsDurations) {
  EXPECT_EQ(duration(59.4), "0:59");
  EXPECT_EQ(duration(3599.6), "1:00:00");
}

}  // namespace
}  // namespace tensorion::lab
