#include "lab/models/state_dict.h"

#include "lab/models/vit.h"
#include "tests/lab/models/golden.h"
#include "tests/lab/temporary_folder.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_close;
using tensorion::testing::expect_error;

Model small_resnet(int64_t classes = 4) {
  return make_model({.name = "resnet18", .classes = classes, .width = 0.125, .depths = {1, 1, 1, 1}});
}

NamedTensors copy_of(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.clone();
  return copies;
}

void expect_equal(const NamedTensors& actual, const NamedTensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(actual.at(name), tensor)) << name;
}

TEST(StateDict, SharesMemoryWithTheModel) {
  const auto model = small_resnet();
  auto tensors = state_dict(*model);
  EXPECT_EQ(tensors.size(), model->parameters().size() + model->buffers().size());
  EXPECT_TRUE(tensors.contains("layer2.0.downsample.1.num_batches_tracked"));
  EXPECT_FALSE(tensors.at("fc.weight").requires_grad());
  tensors.at("fc.weight").fill_(3.0);
  EXPECT_EQ(model->named_parameters()["fc.weight"].min().item<float>(), 3.0F);
}

TEST(StateDict, RoundTripsThroughAFile) {
  const testing::TemporaryFolder folder;
  for (const auto& name : {"resnet50", "vit_medium_patch16_gap_256", "swin_tiny_patch4_window7_224"}) {
    ModelOptions options{.name = name, .classes = 4, .width = 0.34};
    if (name[0] != 'r') options.image_size = 32;
    const auto model = make_model(options);
    model->forward(testing::images({2, 3, 32, 32}));  // updates the counters of the batch norms
    write_safetensors(folder.file("x"), state_dict(*model));
    const auto other = make_model(options);
    EXPECT_TRUE(load_weights(*other, folder.file("x")).empty());
    expect_equal(state_dict(*other), state_dict(*model));
    for (const auto& parameter : other->parameters()) EXPECT_TRUE(parameter.requires_grad());
  }
}

TEST(StateDict, LoadsFileWrittenByTimm) {
  Vit model({.image_size = 8, .patch = 4, .dim = 8, .depth = 1, .heads = 2, .classes = 3});
  model.eval();
  auto tensors = read_safetensors(testing::golden_path("vit.safetensors")).tensors;
  const auto expected = tensors.extract("expected.logits").mapped();
  EXPECT_EQ(tensors.at("head.weight").scalar_type(), at::kHalf);
  EXPECT_TRUE(load_state_dict(model, tensors, "vit.safetensors").empty());
  EXPECT_EQ(state_dict(model).at("head.weight").scalar_type(), at::kFloat);
  const torch::NoGradGuard no_grad;
  expect_close(model.forward(testing::images({2, 3, 8, 8})), expected, 1e-5);
}

TEST(StateDict, ReinitializesHeadForOtherClasses) {
  for (const auto& name : {"resnet18", "vit_small_patch16_224", "swin_tiny_patch4_window7_224"}) {
    ModelOptions options{.name = name, .classes = 7, .width = 0.34};
    if (name[0] != 'r') options.image_size = 32;
    const auto source = make_model(options);
    testing::fill(*source);
    options.classes = 4;
    const auto model = make_model(options);
    testing::fill(*model);
    auto before = copy_of(state_dict(*model));
    at::manual_seed(4);
    const auto head = model->head_name();
    EXPECT_EQ(load_state_dict(*model, state_dict(*source), "x"),
              (std::vector<std::string>{head + ".weight", head + ".bias"}));
    const auto loaded = state_dict(*model);
    for (const auto& [key, tensor] : state_dict(*source)) {
      EXPECT_TRUE(key.starts_with(head + ".") || at::equal(loaded.at(key), tensor)) << key;
    }
    // The new head has the scale of initial weights, not that of the formula.
    EXPECT_FALSE(at::equal(loaded.at(head + ".weight"), before.at(head + ".weight")));
    EXPECT_LT(loaded.at(head + ".weight").abs().max().item<double>(), 0.15) << name;
    EXPECT_GT(loaded.at(head + ".weight").std().item<double>(), 0.01) << name;
    const auto fresh = copy_of(loaded);
    at::manual_seed(4);
    model->reset_head();
    expect_equal(state_dict(*model), fresh);
  }
}

TEST(StateDict, ListsMismatchesAndChangesNothing) {
  const auto model = small_resnet();
  const auto before = copy_of(state_dict(*model));
  const auto expect_refused = [&](const NamedTensors& tensors, const std::string& part) {
    expect_error<c10::ValueError>([&] { load_state_dict(*model, tensors, "w.safetensors"); },
                                  "[tensorion.load_weights] w.safetensors does not match the model; " + part);
    expect_equal(state_dict(*model), before);
  };
  auto good = copy_of(before);
  for (auto& [name, tensor] : good) tensor.zero_();

  auto tensors = good;
  tensors.erase("bn1.bias");
  tensors.erase("layer1.0.conv1.weight");
  tensors["bn9.bias"] = at::ones({1});
  tensors["conv1.weight"] = at::ones({8, 1, 7, 7});
  expect_refused(
      tensors,
      "2 missing: bn1.bias, layer1.0.conv1.weight; 1 unexpected: bn9.bias; "
      "1 with a different shape: conv1.weight: expected [8, 3, 7, 7], got [8, 1, 7, 7]; the file looks "
      "like --model resnet18 --width 0.125 --depths 1,1,1,1 --stem imagenet");

  tensors = good;  // a head with different features is an error, unlike one with different classes
  tensors["fc.weight"] = at::ones({7, 32});
  tensors["fc.bias"] = at::ones({7});
  expect_refused(
      tensors,
      "2 with a different shape: fc.bias: expected [4], got [7], fc.weight: expected [4, 64], got [7, 32]");

  tensors = good;
  tensors.erase("fc.bias");
  expect_refused(tensors, "1 missing: fc.bias");
  expect_refused({}, "");
}

// Regression test: the message listed all differences in one line of 5 kB.
TEST(StateDict, SummarizesManyMismatches) {
  const auto model = make_model({.name = "resnet18", .width = 0.25});
  const auto tensors = state_dict(*make_model({.name = "resnet18", .width = 0.125}));
  try {
    load_state_dict(*model, tensors, "w");
    FAIL() << "it was loaded";
  } catch (const c10::ValueError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_NE(text.find("the file looks like --model resnet18 --width 0.125 --stem imagenet"),
              std::string::npos)
        << text;
    EXPECT_LT(text.size(), 500U);
  }
}

TEST(StateDict, LoadsFilesWithoutHeadOrCounters) {
  const auto model = small_resnet();
  auto tensors = copy_of(state_dict(*model));
  std::erase_if(tensors, [](const auto& entry) {
    return entry.first.starts_with("fc.") || entry.first.ends_with("num_batches_tracked");
  });
  for (auto& [name, tensor] : tensors) tensor.fill_(3);
  EXPECT_EQ(load_state_dict(*model, tensors, "x"), (std::vector<std::string>{"fc.weight", "fc.bias"}));
  const auto loaded = state_dict(*model);
  EXPECT_TRUE(loaded.at("conv1.weight").eq(3).all().item<bool>());
  EXPECT_EQ(loaded.at("bn1.num_batches_tracked").item<int64_t>(), 0);
}

TEST(StateDict, RejectsFilesOfTorchSaveByExtension) {
  expect_error<c10::ValueError>([] { load_weights(*small_resnet(), "weights.pt"); },
                                "weights.pt looks like a file of torch.save; expected a safetensors file");
}

TEST(StateDict, IgnoresBuffersThatModelsCompute) {
  const auto model = make_model({.name = "swin_tiny_patch4_window7_224", .width = 0.34, .image_size = 32});
  auto tensors = copy_of(state_dict(*model));
  // Older versions of timm saved these buffers.
  tensors["layers.0.blocks.0.attn.relative_position_index"] = at::zeros({49, 49}, at::kLong);
  tensors["layers.0.blocks.1.attn_mask"] = at::zeros({4, 49, 49});
  EXPECT_TRUE(load_state_dict(*model, tensors, "x").empty());
}

}  // namespace
}  // namespace tensorion::lab
