#include "lab/experiments/presets.h"

namespace tensorion::lab {
namespace {

PresetMethod sgd(const std::string& schedule, const std::string& lr, const std::string& decay,
                 std::optional<PaperResult> paper = {}) {
  return {{"sgd", "sgd", {{"schedule", schedule}, {"lr", lr}, {"weight_decay", decay}}}, "SGD-M", paper};
}

PresetMethod adamw(const std::string& schedule, const std::string& lr, const std::string& decay,
                   std::optional<PaperResult> paper = {}) {
  return {{"adamw", "adamw", {{"schedule", schedule}, {"lr", lr}, {"weight_decay", decay}}}, "AdamW", paper};
}

// Tensorion with the fallback "sgd" or "adamw".
PresetMethod tensorion_with(const std::string& fallback, const std::string& schedule, const std::string& lr,
                            const std::string& decay, std::optional<PaperResult> paper = {}) {
  return {{"tensorion-" + fallback,
           "tensorion",
           {{"fallback", fallback}, {"schedule", schedule}, {"lr", lr}, {"weight_decay", decay}}},
          fallback == "sgd" ? "T-SGD" : "T-AdamW",
          paper};
}

// Tensorion as in the ablation: exact polar factors, AdamW as the fallback, and a constant learning rate.
PresetMethod ablated(const std::string& name, const std::string& unfolding, const std::string& lr,
                     const std::string& title, const PaperResult& paper) {
  return {{name,
           "tensorion",
           {{"unfolding", unfolding},
            {"polar", "svd"},
            {"fallback", "adamw"},
            {"schedule", "constant"},
            {"lr", lr},
            {"weight_decay", "5e-4"}}},
          title,
          paper};
}

// A method of the comparison of unfoldings, in which all methods use the same schedule and fallback.
PresetMethod unfolded(const std::string& name, const std::string& optimizer, const std::string& title,
                      const FlagValues& options = {}) {
  Method method{name, optimizer, {{"schedule", "onecycle"}}};
  method.options.insert(method.options.end(), options.begin(), options.end());
  return {method, title};
}

FlagValues with(FlagValues values, const FlagValues& more) {
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

FlagValues smoke_run() {
  return {{"--width", "0.125"},    {"--epochs", "1"},      {"--limit-train", "200"},
          {"--limit-test", "100"}, {"--batch-size", "20"}, {"--seeds", "0"}};
}

FlagValues smoke_resnet() { return with({{"--depths", "1,1,1,1"}}, smoke_run()); }

Preset imagenette(const std::string& name, const std::string& model, const std::string& small_model) {
  return {.name = name,
          .flags = {{"--dataset", "imagenette"}},
          .paper = {{"--model", model}, {"--epochs", "5"}, {"--batch-size", "64"}, {"--seeds", "0"}},
          .small = {{"--model", small_model},
                    {"--epochs", "5"},
                    {"--batch-size", "25"},
                    {"--limit-train", "500"},
                    {"--seeds", "0"}},
          .smoke = with({{"--model", small_model}, {"--width", "0.34"}}, smoke_run()),
          .methods = {sgd("cosine", "0.005", "5e-4"), adamw("cosine", "1e-4", "5e-4"),
                      tensorion_with("sgd", "cosine", "5e-4", "5e-4"),
                      tensorion_with("adamw", "cosine", "1e-4", "5e-4")},
          .notes = {"(the paper shows this experiment in figures only)"},
          .is_finetuning = true,
          .choices = {
              "Images are normalized, resized and cropped as timm's configuration of the weights specifies.",
              "There is one seed, which is our choice."}};
}

}  // namespace

std::string PresetMethod::option(const std::string& name) const { return find_value(method.options, name); }

const PresetMethod* Preset::find_method(const std::string& name) const {
  for (const auto& each : methods) {
    if (each.method.name == name) return &each;
  }
  return nullptr;
}

std::string Preset::paper_flag(const std::string& flag) const { return find_value(with(paper, flags), flag); }

Method Preset::method(const PresetMethod& method, const std::string& scale) const {
  auto out = method.method;
  const bool is_tensorion = out.optimizer == "muon" || out.optimizer == "tensorion";
  if (is_tensorion && scale == "paper" && polar == "newton_schulz") {
    const FlagValues newton_schulz{{"polar", polar}, {"ns_coefficients", "muon"}, {"ns_steps", "5"}};
    out.options.insert(out.options.end(), newton_schulz.begin(), newton_schulz.end());
  }
  return out;
}

const FlagValues& Preset::scale(const std::string& name) const {
  return name == "paper" ? paper : name == "small" ? small : smoke;
}

// The learning rates and weight decays are copied from the paper's table "hyperparameters".
const std::vector<Preset>& comparison_presets() {
  static const std::vector<Preset> presets{
      {.name = "cifar10",
       .flags = {{"--dataset", "cifar10"}, {"--model", "resnet18"}},
       .paper = {{"--epochs", "200"}, {"--batch-size", "128"}, {"--seeds", "0,1,2"}},
       .small = {{"--width", "0.25"}, {"--epochs", "10"}, {"--limit-train", "10000"}, {"--seeds", "0,1,2"}},
       .smoke = smoke_resnet(),
       .methods = {sgd("multistep", "0.075", "5e-4", {{94.1, 0.13, 0.25, 0.02}}),
                   adamw("multistep", "1e-4", "1e-4", {{93.7, 0.3, 0.44, 0.02}}),
                   tensorion_with("sgd", "onecycle", "0.001", "1e-4", {{95.3, 0.1, 0.21, 0.01}}),
                   tensorion_with("adamw", "onecycle", "0.075", "5e-4", {{94.34, 0.3, 0.59, 0.08}})}},
      {.name = "cifar100",
       .flags = {{"--dataset", "cifar100"}, {"--model", "resnet34"}},
       .paper = {{"--epochs", "250"},
                 {"--batch-size", "128"},
                 {"--milestones", "60,120,160"},
                 {"--gamma", "0.2"},
                 {"--seeds", "0,1,2"}},
       .small = {{"--width", "0.25"},
                 {"--epochs", "6"},
                 {"--milestones", "2,4,5"},
                 {"--gamma", "0.2"},
                 {"--limit-train", "10000"},
                 {"--seeds", "0,1,2"}},
       .smoke = smoke_resnet(),
       .methods = {sgd("multistep", "0.05", "5e-4", {{78.2, 0.2, 0.89, 0.13}}),
                   adamw("multistep", "2.5e-4", "5e-4", {{74.2, 0.1, 1.33, 0.1}}),
                   tensorion_with("sgd", "onecycle", "0.0075", "5e-4", {{79.1, 0.1, 0.98, 0.09}}),
                   tensorion_with("adamw", "onecycle", "5e-5", "5e-4", {{73.8, 0.2, 4.89, 0.11}})},
       .choices =
           {"The milestones and gamma come from mmpretrain's recipe for CIFAR-100, which has 200 epochs."}},
      {.name = "tiny-imagenet",
       .flags = {{"--dataset", "tiny-imagenet"}, {"--model", "resnet50"}},
       .paper = {{"--epochs", "200"}, {"--batch-size", "128"}, {"--seeds", "0,1,2"}},
       .small = {{"--width", "0.25"},
                 {"--stem", "imagenet"},
                 {"--epochs", "10"},
                 {"--batch-size", "64"},
                 {"--limit-train", "10000"},
                 {"--seeds", "0,1,2"}},
       .smoke = smoke_resnet(),
       .methods = {sgd("onecycle", "0.01", "5e-4", {{61.01, 0.02, 1.79, 0.06}}),
                   adamw("onecycle", "5e-4", "1e-4", {{57.4, 0.1, 1.33, 0.05}}),
                   tensorion_with("sgd", "onecycle", "0.075", "5e-4", {{62.7, 0.1, 1.65, 0.06}})},
       .choices = {"The first layers of the ResNet (--stem) are our choice."}},
      imagenette("imagenette-vit", "vit_base_patch16_224", "vit_small_patch16_224"),
      imagenette("imagenette-swin", "swin_base_patch4_window7_224", "swin_tiny_patch4_window7_224"),
      {.name = "unfoldings",
       .title = "Unfoldings under one protocol",
       .flags = {{"--dataset", "cifar10"}, {"--model", "resnet18"}, {"--reference", "muon"}},
       .paper = {{"--epochs", "200"}, {"--batch-size", "128"}, {"--seeds", "0,1,2,3,4,5,6,7"}},
       .small = {{"--width", "0.25"},
                 {"--epochs", "8"},
                 {"--limit-train", "10000"},
                 {"--validation", "2000"},
                 {"--seeds", "0,1,2,3,4,5,6,7"}},
       .smoke = smoke_resnet(),
       .methods = {unfolded("muon", "muon", "{1}"), unfolded("balanced", "tensorion", "tau^opt"),
                   unfolded("online", "tensorion", "online tau", {{"unfolding", "online"}}),
                   unfolded("online-10", "tensorion", "online tau, every 10 steps",
                            {{"unfolding", "online"}, {"online_interval", "10"}}),
                   unfolded("modes-0-1", "tensorion", "{1,2}", {{"unfolding", "0,1"}}),
                   unfolded("adamw", "adamw", "AdamW"), unfolded("sgd", "sgd", "SGD-M")},
       .polar = ""},
      {.name = "unfoldings-tiny-imagenet",
       .title = "Unfoldings under one protocol",
       .flags = {{"--dataset", "tiny-imagenet"}, {"--model", "resnet50"}, {"--reference", "muon"}},
       .paper = {{"--epochs", "200"}, {"--batch-size", "128"}, {"--seeds", "0,1,2,3"}},
       .small = {{"--width", "0.25"},
                 {"--stem", "imagenet"},
                 {"--epochs", "10"},
                 {"--batch-size", "64"},
                 {"--validation", "0"},
                 {"--limit-train", "10000"},
                 {"--seeds", "0,1,2,3"}},
       .smoke = smoke_resnet(),
       .methods = {unfolded("muon", "muon", "{1}"), unfolded("balanced", "tensorion", "tau^opt"),
                   unfolded("adamw", "adamw", "AdamW"), unfolded("sgd", "sgd", "SGD-M")},
       .polar = ""},
  };
  return presets;
}

// The learning rates are copied from the paper's table "tau-ablation-lr". The paper says that the weight
// decay is the same for all methods, but does not specify it. This preset uses 5e-4, a value of the paper's
// other experiments.
const Preset& ablation_preset() {
  static const Preset preset{
      .name = "ablation",
      .title = "Unfoldings of a kernel",
      .flags = {{"--dataset", "cifar10"}, {"--model", "resnet18"}},
      .paper = {{"--epochs", "25"}, {"--batch-size", "128"}, {"--seeds", "0,1,2,3,4,5,6,7,8,9"}},
      .small = {{"--width", "0.25"}, {"--epochs", "8"}, {"--limit-train", "8000"}, {"--seeds", "0,1,2"}},
      .smoke = smoke_resnet(),
      .methods = {ablated("modes-0", "0", "0.01", "{1}", {90.67, 0.32, 0.424, 0.026}),
                  ablated("modes-1", "1", "0.001", "{2}", {90.62, 0.44, 0.404, 0.024}),
                  ablated("modes-2", "2", "0.001", "{3}", {87.40, 1.00, 0.485, 0.051}),
                  ablated("modes-3", "3", "0.005", "{4}", {88.05, 0.69, 0.423, 0.028}),
                  ablated("modes-0-1", "0,1", "0.005", "{1,2}", {88.83, 0.39, 0.430, 0.022}),
                  ablated("modes-0-2", "0,2", "0.001", "{1,3}", {90.30, 0.51, 0.426, 0.031}),
                  ablated("modes-0-3", "0,3", "0.005", "{1,4}", {90.77, 0.45, 0.432, 0.038}),
                  ablated("balanced", "balanced", "0.01", "tau^opt", {90.44, 0.36, 0.441, 0.024}),
                  ablated("online", "online", "0.005", "online tau", {91.10, 0.39, 0.416, 0.026}),
                  sgd("constant", "0.05", "5e-4", {{86.10, 1.82, 0.527, 0.095}}),
                  adamw("constant", "5e-4", "5e-4", {{86.04, 1.05, 0.507, 0.041}})},
      .notes =
          {"(sets as in the paper, with modes counted from 1; where its table of learning rates has {1,4}, "
           "its table of results has {2,4}, which is the same unfolding as {1,3})"},
      .polar = "svd",
      .specifies_weight_decay = false};
  return preset;
}

}  // namespace tensorion::lab
