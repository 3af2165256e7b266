// The bytes are the checkpoint of a run. The run must resume from it or report an error.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/conv.h>

#include "lab/training/checkpoint.h"
#include "lab/training/optimizers.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/safetensors_mutator.h"
#include "tests/lab/temporary_folder.h"

namespace {

using namespace tensorion;

// A minimal model, for speed.
class Model : public lab::Classifier {
 public:
  Model() { conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 2))); }
  at::Tensor forward(at::Tensor images) override { return conv_->forward(images).mean({2, 3}); }
  std::string head_name() const override { return "conv"; }
  void reset_head() override { conv_->reset_parameters(); }

 private:
  torch::nn::Conv2d conv_{nullptr};
};

struct Run {
  fuzz::MemoryFile file;
  lab::testing::TemporaryFolder folder;
  Model model;
  Tensorion optimizer{model.parameters(), lab::default_options("tensorion")};

  Run() { std::filesystem::create_symlink(file.path(), folder / "checkpoint.safetensors"); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Run run;
  run.file.write(data, size);
  std::vector<at::Tensor> before;
  for (const auto& parameter : run.model.parameters()) before.push_back(parameter.detach().clone());
  const bool loaded = fuzz::succeeds<c10::Error>(run.folder.path(), [] {
    lab::load_checkpoint(run.folder.path(), run.model, run.optimizer,
                         [](const std::string& what) { fuzz::fail(what); });
  });
  if (loaded) {
    at::rand({2000});  // checks that the generator works
    return 0;
  }
  const auto after = run.model.parameters();
  for (size_t i = 0; i < before.size(); ++i) {
    fuzz::expect(
        before[i].equal(after[i].nan_to_num()) || before[i].nan_to_num().equal(after[i].nan_to_num()),
        "the model changed although the checkpoint was refused");
  }
  return 0;
}
