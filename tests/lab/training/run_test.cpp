#include "lab/training/run.h"

#include "tests/lab/temporary_folder.h"
#include "tests/lab/training/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::kSide;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::tiny_data;

// Two epochs of four steps.
RunConfig tiny_config() {
  RunConfig config;
  config.width = 0.125;
  config.depths = {1, 1, 1, 1};
  config.training.epochs = 2;
  config.batch_size = 12;
  config.seed = 3;
  return config;
}

DatasetSplits tiny_splits() {
  DatasetSplits data;
  data.name = "tiny";
  data.classes = {"a", "b", "c"};
  data.train = tiny_data(45, 1);
  data.test = tiny_data(30, 2);
  data.train_transform = {{kSide, kSide}, PaddedCrop{1}, true, {{0.5}, {0.5}}};
  data.test_transform = {{kSide, kSide}, PaddedCrop{0}, false, {{0.5}, {0.5}}};
  return data;
}

RunSummary run(
    const std::filesystem::path& folder, bool resume = false,
    const std::function<bool()>& interrupted = [] { return false; }) {
  RunOptions options;
  options.folder = folder;
  options.resume = resume;
  options.interrupted = interrupted;
  options.warn = testing::no_warning;
  TrainingObserver quiet;
  return run_training(tiny_config(), tiny_splits(), options, quiet);
}

// The parameter is the poll at which the run is stopped. The flag is polled 15 times: after each of the four
// steps and the three test batches of both epochs, and between the epochs.
class StoppedRun : public ::testing::TestWithParam<int64_t> {};

TEST_P(StoppedRun, ResumesToTheSameResult) {
  const TemporaryFolder folder;
  const auto expected = run(folder / "whole");
  int64_t polls = 0;
  const int64_t epoch = GetParam() / 8 + 1, step = std::min<int64_t>(4, GetParam() % 8);
  expect_error<Interrupted>([&] { run(folder / "run", false, [&] { return ++polls == GetParam(); }); },
                            c10::str("stopped in epoch ", epoch, " after step ", step));
  const auto summary = run(folder / "run", true);
  EXPECT_EQ(read_bytes(folder.file("run/weights.safetensors")),
            read_bytes(folder.file("whole/weights.safetensors")));
  ASSERT_EQ(summary.epochs.size(), expected.epochs.size());
  for (size_t i = 0; i < summary.epochs.size(); ++i) {
    EXPECT_EQ(summary.epochs[i].train_loss, expected.epochs[i].train_loss);
    EXPECT_EQ(summary.epochs[i].test_loss, expected.epochs[i].test_loss);
    EXPECT_EQ(summary.epochs[i].test_accuracy, expected.epochs[i].test_accuracy);
  }
}

INSTANTIATE_TEST_SUITE_P(AtEveryPoll, StoppedRun, ::testing::Range(int64_t{1}, int64_t{16}));

}  // namespace
}  // namespace tensorion::lab
