// The tensors of a model by name: what files of weights hold.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lab/io/safetensors.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

// Parameters and buffers under timm's names. They share the module's memory.
NamedTensors state_dict(const torch::nn::Module& module);

// Whether the tensors fit the model but for a head of another number of classes. If they do not fit at all,
// the error of load_state_dict.
bool check_state_dict(const Classifier& model, const NamedTensors& tensors, const std::string& source);

// Copies `tensors` into the model, converted to its dtypes. Names and shapes
// must be the model's; else an error counts what is missing, what is
// unexpected and which shapes differ, names the first of each, and the model stays as it was.
//
// Two differences are allowed: a head for another number of classes, or none
// at all, is not loaded, but drawn anew (the names of what was drawn anew are
// returned), and the counters of batch norms (num_batches_tracked) may be missing.
// `source` (a file's name) stands in the errors.
std::vector<std::string> load_state_dict(Classifier& model, const NamedTensors& tensors,
                                         const std::string& source);

// A safetensors file; one that torch.save made is recognized by its name, and an error says how to convert
// it.
SafeTensors read_weights(const std::string& path);

// load_state_dict from a safetensors file, such as timm's.
std::vector<std::string> load_weights(Classifier& model, const std::string& path);

}  // namespace tensorion::lab
