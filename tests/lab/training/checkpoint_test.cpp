#include "lab/training/checkpoint.h"

#include "lab/io/safetensors.h"
#include "lab/models/state_dict.h"
#include "tests/lab/temporary_folder.h"
#include "tests/lab/training/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::no_warning;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::TinyRun;
using testing::write_bytes;

void save(const TemporaryFolder& folder, TinyRun& run) {
  save_checkpoint(folder.path(), run.model, run.optimizer, run.trainer.state());
}

TEST(Checkpoint, FallsBackToPreviousCheckpoint) {
  const TemporaryFolder folder;
  TinyRun run;
  run.trainer.set_state({.epoch = 0, .batch = 1});
  save(folder, run);
  run.trainer.set_state({.epoch = 0, .batch = 2});
  save(folder, run);
  const auto load = [&](const std::function<void(const std::string&)>& warn) {
    TinyRun other;
    return load_checkpoint(folder.path(), other.model, other.optimizer, warn)->batch;
  };
  EXPECT_EQ(load(no_warning), 2);
  // The process was killed between the two renames of the next checkpoint.
  std::filesystem::rename(folder.file("checkpoint.safetensors"), folder.file("x"));
  EXPECT_EQ(load(no_warning), 1);
  // The newest checkpoint is truncated.
  write_bytes(folder.file("checkpoint.safetensors"), read_bytes(folder.file("x")).substr(0, 1000));
  std::string warning;
  EXPECT_EQ(load([&](const std::string& what) { warning = what; }), 1);
  EXPECT_NE(warning.find("checkpoint.safetensors: "), std::string::npos) << warning;
  EXPECT_NE(warning.find("continuing from the previous checkpoint"), std::string::npos) << warning;
  // Without a previous checkpoint, a damaged one is an error.
  write_bytes(folder.file("checkpoint.safetensors"), read_bytes(folder.file("x")).substr(0, 1000));
  expect_error<c10::ValueError>([&] { load(no_warning); }, folder.file("checkpoint.safetensors"));
  std::filesystem::remove(folder.file("checkpoint.safetensors"));
  TinyRun other;
  EXPECT_FALSE(load_checkpoint(folder.path(), other.model, other.optimizer, no_warning).has_value());
}

TEST(Checkpoint, DamagedCheckpointDoesNotReplaceIntactOne) {
  const TemporaryFolder folder;
  const auto newest = folder.file("checkpoint.safetensors");
  const auto previous = folder.file("checkpoint.previous.safetensors");
  TinyRun run;
  run.trainer.set_state({.epoch = 0, .batch = 1});
  save(folder, run);
  const auto good = read_bytes(newest);
  run.trainer.set_state({.epoch = 0, .batch = 2});
  save(folder, run);
  auto damaged = read_bytes(newest);
  damaged[damaged.size() / 2] ^= 4;  // in the data of a tensor, so only the checksum can detect it
  write_bytes(newest, damaged);
  TinyRun other;
  std::string warning;
  const auto state = load_checkpoint(folder.path(), other.model, other.optimizer,
                                     [&](const std::string& what) { warning = what; });
  EXPECT_EQ(state->batch, 1);
  EXPECT_NE(warning.find(newest + ": the file is damaged: its checksum is "), std::string::npos) << warning;
  EXPECT_EQ(read_bytes(newest), good);
  EXPECT_FALSE(std::filesystem::exists(previous));

  // If both are damaged, the error contains both paths.
  write_bytes(newest, damaged);
  write_bytes(previous, damaged);
  const auto load = [&] { load_checkpoint(folder.path(), other.model, other.optimizer, no_warning); };
  expect_error<c10::ValueError>(load, newest + ": the file is damaged");
  expect_error<c10::ValueError>(load, previous + ": the file is damaged");
  EXPECT_EQ(read_bytes(newest), damaged);
  EXPECT_EQ(read_bytes(previous), damaged);
}

TEST(Checkpoint, RejectsInvalidContents) {
  const TemporaryFolder folder;
  TinyRun run;
  save(folder, run);
  const auto path = folder.file("checkpoint.safetensors");
  const auto good = read_safetensors(path);
  const auto refuse = [&](const std::string& part) {
    TinyRun other;
    expect_error<c10::Error>(
        [&] { load_checkpoint(folder.path(), other.model, other.optimizer, no_warning); }, part);
  };
  auto changed = good;
  changed.metadata["format"] = "something else";
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("expected the format tensorion-checkpoint-2, got 'something else'");
  // Regression test for the last case: a number out of the range of integers was converted nevertheless.
  for (const std::string state :
       {"", "{", "{}", R"({"epoch": "1"})", "[]", R"({"epoch": 1e300, "loss_sum": 0})"}) {
    changed = good;
    changed.metadata["state"] = state;
    write_safetensors(path, changed.tensors, changed.metadata);
    refuse("the training state is not valid");
  }
  changed = good;
  changed.tensors.erase("generator");
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("the state of the random number generator is missing");
  const auto size = good.tensors.at("generator").numel();
  for (const auto& wrong : {at::zeros({3}, at::kByte), at::zeros({size}), at::full({size}, 255, at::kByte)}) {
    changed = good;
    changed.tensors["generator"] = wrong;
    write_safetensors(path, changed.tensors, changed.metadata);
    refuse(path + ": the state of the random number generator is not valid");
  }
  // Torch accepts a state whose position and number of remaining values disagree, and then reads beyond the
  // end of the generator's table.
  changed = good;
  changed.tensors["generator"] = good.tensors.at("generator").clone();
  changed.tensors["generator"].slice(0, 8, 12).copy_(
      at::tensor({88, 2, 0, 0}, at::kByte));  // 600 values left
  changed.tensors["generator"].slice(0, 16, 24).copy_(
      at::tensor({88, 2, 0, 0, 0, 0, 0, 0}, at::kByte));  // position 600
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse(path +
         ": the state of the random number generator is not valid: position 600 does not match 600 values "
         "left of "
         "624");
  changed = good;
  changed.tensors.erase("model.fc.bias");
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("missing: fc.bias");
  changed = good;
  changed.tensors["model.fc.weight"] = at::zeros({5, 4 * 36});
  changed.tensors["model.fc.bias"] = at::zeros({5});
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("has a different number of classes");
}

TEST(Checkpoint, DoesNotExecuteCode) {
  const TemporaryFolder folder;
  const auto mark = folder.file("executed");
  // Bytes that Python's pickle would execute.
  write_bytes(folder.file("checkpoint.safetensors"), "cos\nsystem\n(S'touch " + mark + "'\ntR.");
  TinyRun run;
  expect_error<c10::ValueError>([&] { load_checkpoint(folder.path(), run.model, run.optimizer, no_warning); },
                                folder.file("checkpoint.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(mark));
}

// Regression test: the optimizer was loaded before the model was checked, and the model before its head was.
TEST(Checkpoint, FailedLoadChangesNothing) {
  const TemporaryFolder folder;
  TinyRun run;
  save(folder, run);
  const auto path = folder.file("checkpoint.safetensors");
  const auto good = read_safetensors(path);
  const auto refuse = [&](const std::string& name, const at::Tensor& tensor) {
    auto changed = good;
    for (auto& [key, stored] : changed.tensors) {
      if (key != "generator") stored = stored + 1;
    }
    changed.tensors[name] = tensor;
    write_safetensors(path, changed.tensors, changed.metadata);
    TinyRun other;
    std::map<std::string, at::Tensor> before;
    for (const auto& [key, own] : state_dict(other.model)) before[key] = own.clone();
    EXPECT_THROW(load_checkpoint(folder.path(), other.model, other.optimizer, no_warning), c10::Error);
    for (const auto& [key, own] : state_dict(other.model)) EXPECT_TRUE(at::equal(own, before.at(key))) << key;
    EXPECT_TRUE(other.optimizer.state().empty());
  };
  refuse("model.unexpected", at::zeros({1}));
  refuse("model.conv.bias", at::zeros({77}));
  refuse("optimizer.unexpected", at::zeros({1}));
  auto wide = good;
  wide.tensors["model.fc.weight"] = at::zeros({5, 4 * 36});
  write_safetensors(path, wide.tensors, wide.metadata);
  refuse("model.fc.bias", at::zeros({5}));
}

}  // namespace
}  // namespace tensorion::lab
