#include <ATen/ATen.h>
#include <tensorion/unfolding.h>

#include <iostream>

int main() {
  // A convolution kernel: 8 output channels, 4 input channels, 3 x 3.
  const at::Tensor kernel = at::randn({8, 4, 3, 3});
  const tensorion::Unfolding unfolding(kernel.sizes(), tensorion::balanced_unfolding(kernel.sizes()));
  const at::Tensor matrix = unfolding.unfold(kernel);
  std::cout << "modes " << at::IntArrayRef(unfolding.modes()) << " give " << matrix.sizes() << '\n';
  return at::equal(unfolding.fold(matrix), kernel) ? 0 : 1;
}
