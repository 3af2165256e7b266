#include "lab/data/data_loader.h"

#include <chrono>
#include <set>
#include <thread>
#include <tuple>

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_close;
using testing::expect_error;
using testing::jpeg;
using testing::noise;
using testing::smooth_image;
using testing::TemporaryFolder;
using testing::write_bytes;

// 23 images of shape 3 x 6 x 5; image i has label i.
Dataset numbered() {
  RawSplit split;
  split.pixels = noise({23, 3, 6, 5}, 1);
  for (int64_t i = 0; i < 23; ++i) split.labels.push_back(i);
  return make_dataset(split, ImageSize{6, 5}, 0);
}

const Transform kAugment{{6, 5}, PaddedCrop{2}, true, {{0.4, 0.5, 0.6}, {0.2, 0.3, 0.1}}};
const Transform kPlain{{6, 5}, PaddedCrop{0}, false, {{0.4, 0.5, 0.6}, {0.2, 0.3, 0.1}}};

std::vector<Batch> collect(DataLoader::Epoch epoch) {
  std::vector<Batch> all;
  while (auto batch = epoch.next()) all.push_back(*batch);
  EXPECT_FALSE(epoch.next());
  return all;
}

std::vector<int64_t> labels_of(const std::vector<Batch>& batches) {
  std::vector<int64_t> out;
  for (const auto& batch : batches) {
    const auto* labels = batch.labels.const_data_ptr<int64_t>();
    out.insert(out.end(), labels, labels + batch.labels.numel());
  }
  return out;
}

void expect_same(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].images, b[i].images)) << i;
    EXPECT_TRUE(at::equal(a[i].labels, b[i].labels)) << i;
  }
}

TEST(DataLoader, YieldsEverySampleOnceInOrder) {
  const Dataset data = numbered();
  const DataLoader loader(data, kPlain, {.batch_size = 5});
  EXPECT_EQ(loader.batches(), 5);
  EXPECT_EQ(loader.samples(), 23);
  const auto batches = collect(loader.epoch(0));
  ASSERT_EQ(batches.size(), 5U);
  std::vector<int64_t> expected(23);
  for (int64_t i = 0; i < 23; ++i) expected[i] = i;
  EXPECT_EQ(labels_of(batches), expected);
  std::vector<at::Tensor> images;
  for (const auto& batch : batches) {
    EXPECT_TRUE(batch.images.is_contiguous());
    images.push_back(batch.images);
  }
  EXPECT_EQ(images.back().size(0), 3);
  const auto mean = at::tensor(kPlain.normalization.mean, at::kDouble).view({1, -1, 1, 1});
  const auto std = at::tensor(kPlain.normalization.std, at::kDouble).view({1, -1, 1, 1});
  expect_close(at::cat(images), (data.pixels.to(at::kDouble) / 255 - mean) / std, 1e-6);
}

TEST(DataLoader, DropsPartialLastBatchOnRequest) {
  const DataLoader loader(numbered(), kPlain, {.batch_size = 5, .drop_last = true});
  EXPECT_EQ(loader.batches(), 4);
  EXPECT_EQ(loader.samples(), 20);
  EXPECT_EQ(labels_of(collect(loader.epoch(0))).size(), 20U);
  EXPECT_EQ(DataLoader(numbered(), kPlain, {.batch_size = 23}).batches(), 1);
}

TEST(DataLoader, ShufflesByEpochAndSeed) {
  const DataLoader loader(numbered(), kPlain, {.batch_size = 4, .shuffle = true, .seed = 3});
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const auto order = labels_of(collect(loader.epoch(epoch)));
    EXPECT_EQ(order, labels_of(collect(loader.epoch(epoch))));
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 23U);
    orders.insert(order);
  }
  const DataLoader other(numbered(), kPlain, {.batch_size = 4, .shuffle = true, .seed = 4});
  orders.insert(labels_of(collect(other.epoch(0))));
  EXPECT_EQ(orders.size(), 5U);
}

TEST(DataLoader, AugmentsEverySampleWithItsOwnStream) {
  const Dataset data = numbered();
  const DataLoader loader(data, kAugment, {.batch_size = 4, .shuffle = true, .seed = 3});
  std::vector<uint8_t> buffer;
  for (const auto& batch : collect(loader.epoch(6))) {
    for (int64_t i = 0; i < batch.labels.numel(); ++i) {
      const int64_t sample = batch.labels[i].item<int64_t>();
      auto expected = at::empty({3, 6, 5});
      apply(kAugment, data.image(sample, buffer), Random(3, Random::Purpose::kAugment, 6, sample), false,
            expected.mutable_data_ptr<float>());
      EXPECT_TRUE(at::equal(batch.images[i], expected));
    }
  }
}

// The parameters are `workers` and `prefetch`.
class DataLoaderInBackground : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(DataLoaderInBackground, BatchesDoNotDependOnWorkersOrPrefetch) {
  DataLoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 9};
  const auto expected = collect(DataLoader(numbered(), kAugment, options).epoch(2));
  std::tie(options.workers, options.prefetch) = GetParam();
  expect_same(collect(DataLoader(numbered(), kAugment, options).epoch(2)), expected);
}

INSTANTIATE_TEST_SUITE_P(All, DataLoaderInBackground,
                         ::testing::Combine(::testing::Values(1, 2, 5), ::testing::Values(1, 2, 20)));

TEST(DataLoader, BatchesDoNotDependOnMemoryFormat) {
  DataLoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 9};
  const auto expected = collect(DataLoader(numbered(), kAugment, options).epoch(2));
  options.channels_last = true;
  const auto other = collect(DataLoader(numbered(), kAugment, options).epoch(2));
  expect_same(other, expected);
  EXPECT_TRUE(other[0].images.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(DataLoader, ResumesAtAnyBatch) {
  const DataLoader loader(numbered(), kAugment, {.batch_size = 3, .shuffle = true, .seed = 9, .workers = 2});
  const auto all = collect(loader.epoch(1));
  for (int64_t first = 0; first <= loader.batches(); ++first) {
    expect_same(collect(loader.epoch(1, first)), {all.begin() + first, all.end()});
  }
}

TEST(DataLoader, DoesNotUseTorchsGenerator) {
  at::manual_seed(5);
  const auto expected = at::rand({4});
  at::manual_seed(5);
  collect(DataLoader(numbered(), kAugment, {.batch_size = 3, .shuffle = true}).epoch(0));
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

// Six JPEG files that are read when their batch is prepared.
class DataLoaderOnDisk : public ::testing::Test {
 protected:
  DataLoaderOnDisk() {
    for (int64_t i = 0; i < 6; ++i) {
      split_.files.push_back(folder_ / (std::to_string(i) + ".jpg"));
      split_.labels.push_back(i);
      write_bytes(split_.files.back(), jpeg(smooth_image(3, 20, 30, static_cast<double>(i))));
    }
    data_ = make_dataset(split_, std::nullopt, 0);
  }

  TemporaryFolder folder_;
  RawSplit split_;
  Dataset data_;
  Transform transform_{{12, 12}, RandomResizedCrop{}, true, {{0.4, 0.5, 0.6}, {0.2, 0.3, 0.1}}};
};

class DataLoaderWithWorkers : public DataLoaderOnDisk, public ::testing::WithParamInterface<int64_t> {};

TEST_P(DataLoaderWithWorkers, RethrowsErrorsInOrder) {
  write_bytes(split_.files[3], "not an image");
  const DataLoader loader(data_, transform_, {.batch_size = 1, .workers = GetParam()});
  auto epoch = loader.epoch(0);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(epoch.next()->labels.item<int64_t>(), i);
  expect_error<FileError>([&] { epoch.next(); }, split_.files[3].string() + ": not a valid JPEG image");
  EXPECT_EQ(epoch.next()->labels.item<int64_t>(), 4);
}

INSTANTIATE_TEST_SUITE_P(OneOrSeveral, DataLoaderWithWorkers, ::testing::Values(1, 3));

TEST_F(DataLoaderOnDisk, WorkersDoNotExceedPrefetch) {
  const DataLoader loader(data_, transform_, {.batch_size = 1, .workers = 2, .prefetch = 2});
  auto epoch = loader.epoch(0);
  EXPECT_TRUE(epoch.next());
  // Batches 1 and 2 may be prepared by now, but not batch 3 or later ones.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int64_t i = 3; i < 6; ++i) fs::remove(split_.files[i]);
  fs::remove(split_.files[0]);
  EXPECT_TRUE(epoch.next());
  EXPECT_TRUE(epoch.next());
  expect_error<FileError>([&] { epoch.next(); }, split_.files[3].string());
}

int64_t count_threads() {
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

// Waits, because a joined thread disappears from /proc with a delay.
bool thread_count_drops_to(int64_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (count_threads() > count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_F(DataLoaderOnDisk, AbandonedEpochEndsItsThreads) {
  const int64_t before = count_threads();
  const DataLoader loader(data_, transform_, {.batch_size = 2, .workers = 3, .prefetch = 1});
  const auto all = collect(loader.epoch(0));
  ASSERT_EQ(all.size(), 3U);
  for (int64_t round = 0; round < 300; ++round) {
    const int64_t taken = round % 4;
    std::vector<Batch> batches;
    {
      auto epoch = loader.epoch(0);
      EXPECT_GT(count_threads(), before);
      for (int64_t i = 0; i < taken; ++i) batches.push_back(*epoch.next());
      const auto moved = std::move(epoch);
    }
    expect_same(batches, {all.begin(), all.begin() + taken});
    ASSERT_TRUE(thread_count_drops_to(before)) << round;
  }
}

TEST(DataLoader, RejectsInvalidOptions) {
  const Dataset data = numbered();
  const auto expect = [&](DataLoaderOptions options, const std::string& part) {
    expect_error<c10::ValueError>([&] { DataLoader(data, kPlain, options); }, "[tensorion.data] " + part);
  };
  expect({.batch_size = 0}, "batch_size must be at least 1, got 0");
  expect({.workers = 0}, "workers must be at least 1, got 0");
  expect({.prefetch = -1}, "prefetch must be at least 1, got -1");
  expect({.batch_size = 24, .drop_last = true}, "the number of batches must be at least 1, got 0");
  const DataLoader loader(data, kPlain, {.batch_size = 5});
  expect_error<c10::ValueError>([&] { loader.epoch(0, 6); }, "the first batch must be in [0, 5], got 6");
  expect_error<c10::ValueError>([&] { loader.epoch(0, -1); }, "the first batch must be in [0, 5], got -1");
}

}  // namespace
}  // namespace tensorion::lab
