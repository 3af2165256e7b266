// A small convolutional network learns which quarter of an image is bright.
#include <tensorion/optimizer.h>
#include <torch/nn.h>
#include <torch/serialize.h>

#include <iostream>

namespace nn = torch::nn;

int main() {
  torch::manual_seed(0);
  nn::Sequential model(nn::Conv2d(1, 8, 3), nn::ReLU(), nn::Conv2d(8, 16, 3), nn::ReLU(), nn::Flatten(),
                       nn::Linear(16 * 4 * 4, 4));

  // Kernels go to Tensorion; biases and the last layer's matrix to AdamW, its fallback.
  tensorion::Tensorion optimizer(model->parameters(),
                                 tensorion::TensorionOptions(0.02).unfolding("balanced").fallback_lr(0.003));

  double last = 0;
  for (int step = 1; step <= 60; ++step) {
    const auto labels = torch::randint(4, {64}, torch::kLong);
    const auto quarters = nn::functional::one_hot(labels, 4).to(torch::kFloat).view({64, 1, 2, 2});
    const auto images =
        quarters.repeat_interleave(4, 2).repeat_interleave(4, 3) + 0.5 * torch::randn({64, 1, 8, 8});

    optimizer.zero_grad();
    const auto loss = nn::functional::cross_entropy(model->forward(images), labels);
    loss.backward();
    optimizer.step();

    last = loss.item<double>();
    if (step % 20 == 0) std::cout << "step " << step << "  loss " << last << '\n';
  }
  torch::save(model, "model.pt");
  torch::save(optimizer, "optimizer.pt");
  return last < 0.1 ? 0 : 1;
}
