// write_weights OPTIONS.json WEIGHTS ANSWERS: creates a model from the options and writes its weights to
// WEIGHTS. Writes a batch of images and the model's logits to ANSWERS.
#include <fstream>
#include <iostream>

#include "tests/lab/models/golden.h"

namespace tensorion::lab {
namespace {

void write(const std::string& options_path, const std::string& weights_path,
           const std::string& answers_path) {
  const torch::NoGradGuard no_grad;
  const auto options = nlohmann::json::parse(std::ifstream(options_path));
  const auto model = make_model(testing::model_options(options));
  testing::fill(*model);
  model->eval();
  const auto images = testing::images(options.at("images"));
  write_safetensors(weights_path, state_dict(*model), {{"format", "pt"}});
  write_safetensors(answers_path, {{"images", images}, {"logits", model->forward(images)}});
}

}  // namespace
}  // namespace tensorion::lab

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " OPTIONS.json WEIGHTS ANSWERS\n";
    return 2;
  }
  try {
    tensorion::lab::write(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
