#include "lab/commands/ablation.h"

#include <memory>

#include "lab/commands/compare.h"

namespace tensorion::lab {

void add_ablation(CLI::App& program) {
  const auto options = std::make_shared<CompareOptions>();
  auto* command = program.add_subcommand(
      "ablation", "Compare all unfoldings of the kernels, as the paper does on CIFAR-10 with ResNet-18");
  add_comparison_flags(*command, *options);
  before_help(*command, [command, options] { show_preset_defaults(*command, *options, ablation_preset()); });
  command->callback([command, options] {
    options->flags.given = given_flags(*command);
    if (!options->flags.config.file.empty()) apply_config(*command, options->flags.config.file);
    run_comparison(*command, *options, &ablation_preset());
  });
}

}  // namespace tensorion::lab
