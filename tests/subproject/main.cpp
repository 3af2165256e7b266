#include <tensorion/optimizer.h>
#include <tensorion/schedule.h>
#include <torch/nn.h>

#include <iostream>

int main() {
  torch::manual_seed(0);
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(2, 4, 3));
  tensorion::Tensorion optimizer(layer->parameters(), tensorion::TensorionOptions(0.02));
  tensorion::Scheduler scheduler(optimizer, tensorion::cosine(20));
  const auto x = torch::randn({8, 2, 6, 6});
  double first = 0;
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const auto loss = (layer->forward(x) - 1).square().mean();
    loss.backward();
    optimizer.step();
    scheduler.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::cout << "loss " << first << " to " << last << '\n';
  return last < first ? 0 : 1;
}
