// The bytes are an unfolding, as a value of --unfolding and in the notation of the library.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "lab/flags/run_flags.h"
#include "lab/text/usage_error.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tensorion;

// The strategy must choose an unfolding of a kernel or throw, and its text must parse to an equal strategy.
void use(const UnfoldingStrategy& unfolding) {
  if (!unfolding.is_online()) {
    fuzz::succeeds<c10::ValueError>(
        "[tensorion.unfold]", [&] { fuzz::expect(unfolding.choose({8, 4, 3, 3}).rows() > 0, "no rows"); });
  }
  fuzz::succeeds<c10::ValueError>("[tensorion.lmo]", [&] {
    fuzz::expect(UnfoldingStrategy::parse(unfolding.str()) == unfolding, "parse");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string value = fuzz::text(data, size);
  if (value.find('\0') == std::string::npos) {  // command line arguments cannot contain NUL
    CLI::App program;
    lab::RunFlags flags;
    lab::add_run_flags(program, flags);
    try {
      program.parse({"--unfolding=" + value});
      for (const auto& config : lab::make_configs(flags, {{"muon", "muon"}, {"tensorion", "tensorion"}})) {
        use(config.optimizer_options.unfolding());
      }
    } catch (const CLI::ParseError&) {
    } catch (const lab::UsageError& error) {
      fuzz::expect(std::string(error.what()).find("nfolding") != std::string::npos, error.what());
    }
  }
  fuzz::succeeds<c10::ValueError>("[tensorion.lmo]", [&] { use(UnfoldingStrategy::parse(value)); });
  return 0;
}
