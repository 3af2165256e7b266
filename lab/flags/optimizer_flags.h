// The flags that set options of an optimizer, and the configurations they ask for.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/flags/flag_values.h"
#include "lab/training/run_config.h"

namespace tensorion::lab {

// An optimizer under a name of its own, with values for some of its options (by their names in to_json),
// which the command line overrules: {"tensorion-sgd", "tensorion", {{"fallback", "sgd"}}}.
struct Method {
  std::string name;
  std::string optimizer;
  FlagValues options = {};
};

// The values on the command line by option: "0.1" for all methods, or "sgd=0.1,adamw=1e-3" for each by its
// name; empty if the flag is not there.
using OptimizerFlags = std::map<std::string, std::string>;

// `given` must outlive the parsing.
void add_optimizer_flags(CLI::App& command, OptimizerFlags& given, const std::string& group);

// Makes --help show what these methods have as the defaults of the optimizers' flags.
void show_optimizer_defaults(CLI::App& command, const std::vector<Method>& methods);

// The configuration of each method, in their order: `common` with the method's optimizer and options. It is
// an error to give a flag that none of them has.
std::vector<RunConfig> make_configs(const RunConfig& common, const OptimizerFlags& given,
                                    const std::vector<Method>& methods);

// Throws if a flag of the command line (`given`, by its name) has no effect on any of the runs.
void check_effects(const std::vector<RunConfig>& configs, const std::set<std::string>& given);

}  // namespace tensorion::lab
