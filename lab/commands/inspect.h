// `tensorion inspect`: the unfoldings of tensors and what a step on each costs.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tensorion::lab {

struct NamedShape {
  std::string name;  // empty where only a shape was given
  std::vector<int64_t> shape;
  at::Tensor values;  // undefined where only a shape was given
};

// The floating-point tensors of a safetensors file.
std::vector<NamedShape> read_tensors(const std::string& path);

// Shapes such as "64x3x7x7,512x512x3x3", or a named set ("resnet18").
std::vector<NamedShape> parse_shapes(const std::string& text);

// Floating-point operations of a step on an m x n unfolding, m <= n: its Gram
// matrix (m^2 n) and one product with it (2 m^2 n). What lies between, on m x m
// matrices, depends on the method.
double step_flop(int64_t rows, int64_t cols);

void add_inspect(CLI::App& program);

}  // namespace tensorion::lab
