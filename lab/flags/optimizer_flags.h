// The flags that set the options of optimizers, and the configurations that result from them.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/flags/flag_values.h"
#include "lab/training/run_config.h"

namespace tensorion::lab {

// A named optimizer with values for some of its options, which the command line overrides. Options have the
// names of to_json. Example: {"tensorion-sgd", "tensorion", {{"fallback", "sgd"}}}.
struct Method {
  std::string name;
  std::string optimizer;
  FlagValues options = {};
};

// The values on the command line by option. A value is either one value for all methods, such as "0.1", or
// has one value for each method, such as "sgd=0.1,adamw=1e-3". It is empty or missing if the flag is not
// given.
using OptimizerFlags = std::map<std::string, std::string>;

// `given` must outlive the parsing of the command line.
void add_optimizer_flags(CLI::App& command, OptimizerFlags& given, const std::string& group);

// Makes --help show the option values of these methods as the defaults of the optimizer flags.
void show_optimizer_defaults(CLI::App& command, const std::vector<Method>& methods);

// Returns the configuration of each method, in the same order: `common` with the optimizer and the options of
// the method. Throws if a given flag applies to none of the methods.
std::vector<RunConfig> make_configs(const RunConfig& common, const OptimizerFlags& given,
                                    const std::vector<Method>& methods);

// Throws if a flag on the command line has no effect on any of the runs. `given` contains the names of these
// flags.
void check_effects(const std::vector<RunConfig>& configs, const std::set<std::string>& given);

}  // namespace tensorion::lab
