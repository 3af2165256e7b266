// State dicts of models: getting, checking and loading them.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lab/io/safetensors.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

// Returns the parameters and buffers by name. The tensors share memory with the module.
NamedTensors state_dict(const torch::nn::Module& module);

// Returns true if load_state_dict would reinitialize the head, and false if it would load all tensors. Throws
// the same error as load_state_dict if the tensors do not match the model.
bool check_state_dict(const Classifier& model, const NamedTensors& tensors, const std::string& source);

// Copies `tensors` into the model and converts them to its dtypes. Names and shapes must match. Otherwise the
// model is unchanged, and the error lists the missing and unexpected names and the shapes that differ.
// `source` is the name of the file for error messages.
//
// Two differences are allowed. If the head is missing or has a different number of classes, the model's head
// is reinitialized; the names of its parameters are returned. The counters of batch norms
// (num_batches_tracked) may be missing.
std::vector<std::string> load_state_dict(Classifier& model, const NamedTensors& tensors,
                                         const std::string& source);

// Reads a safetensors file. If the file's extension is one that torch.save uses, the error explains how to
// convert the file.
SafeTensors read_weights(const std::string& path);

// Reads a safetensors file, for example from timm, and calls load_state_dict.
std::vector<std::string> load_weights(Classifier& model, const std::string& path);

}  // namespace tensorion::lab
