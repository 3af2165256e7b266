#include "lab/training/progress.h"

#include <algorithm>
#include <cmath>

#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};  // on a terminal
constexpr std::chrono::seconds kLineInterval{30};          // in a file or a pipe
constexpr int64_t kBarWidth = 20;
constexpr double kMinReportedWait = 5;  // percent of the time

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string bar(int64_t done, int64_t all) {
  const auto filled = static_cast<size_t>(kBarWidth * done / all);
  std::string text(kBarWidth, ' ');
  std::fill_n(text.begin(), filled, '=');
  if (filled < text.size()) text[filled] = '>';
  return "[" + text + "]";
}

}  // namespace

std::string duration(double seconds) {
  const auto whole = static_cast<long>(std::llround(seconds));
  if (whole < 3600) return string_printf("%ld:%02ld", whole / 60, whole % 60);
  return string_printf("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_line(const Trainer& trainer, double seconds_left, int width) {
  const auto& state = trainer.state();
  const auto samples = static_cast<double>(state.samples);
  const auto epoch = string_printf("epoch %ld/%ld", state.epoch + 1, trainer.options().epochs);
  const auto step = string_printf(" %ld/%ld", state.batch, trainer.batches());
  const auto rest = string_printf("  loss %.4f", state.loss_sum / std::max(1.0, samples));
  const auto speed =
      string_printf("  %.0f images/s  optimizer %.0f %%", samples / std::max(1e-9, state.seconds),
                    percent(state.optimizer_seconds, state.seconds));
  const auto left = "  ETA " + duration(seconds_left);
  // In a narrow terminal, the speed is omitted first, then the bar.
  const auto with_bar = epoch + " " + bar(state.batch, trainer.batches()) + step + rest;
  for (const auto& line : {with_bar + speed + left, with_bar + left}) {
    if (line.size() < static_cast<size_t>(width)) return line;
  }
  return epoch + step + rest + left;
}

std::string epoch_line(const EpochMetrics& metrics, int64_t epochs) {
  const double waiting = percent(metrics.data_seconds, metrics.seconds);
  return string_printf(
      "epoch %ld/%ld  lr %.3g  train loss %.4f  test loss %.4f  accuracy %.2f %%  %s, %.0f %% in the "
      "optimizer%s",
      metrics.epoch, epochs, metrics.lr, metrics.train_loss, metrics.test_loss, 100 * metrics.test_accuracy,
      duration(metrics.seconds).c_str(), percent(metrics.optimizer_seconds, metrics.seconds),
      waiting < kMinReportedWait ? ""
                                 : string_printf(", %.0f %% waiting for data (--workers)", waiting).c_str());
}

Progress::Progress(Terminal& terminal, std::string label, Table table)
    : terminal_(terminal),
      label_(std::move(label)),
      table_(std::move(table)),
      // A terminal shows the first step at once, so that a short run is seen as well.
      shown_(terminal.is_tty() ? start_ - kRedrawInterval : start_) {}

void Progress::after_step(const Trainer& trainer) {
  ++steps_;
  const auto now = Clock::now();
  const auto interval =
      terminal_.is_tty() ? Clock::duration(kRedrawInterval) : Clock::duration(kLineInterval);
  if (now - shown_ < interval) return;
  const auto& state = trainer.state();
  const int64_t left = (trainer.options().epochs - state.epoch) * trainer.batches() - state.batch;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  show(trainer, progress_line(trainer, elapsed / static_cast<double>(steps_) * static_cast<double>(left),
                              terminal_.width()));
}

void Progress::before_test(const Trainer& trainer) {
  if (!terminal_.is_tty()) return;
  show(trainer, string_printf("epoch %ld/%ld  testing", trainer.state().epoch + 1, trainer.options().epochs));
}

void Progress::after_epoch(const Trainer& trainer) {
  auto line = epoch_line(trainer.state().history.back(), trainer.options().epochs);
  const int64_t skipped = trainer.state().skipped_steps - skipped_;
  skipped_ += skipped;
  if (skipped > 0)
    line += string_printf(", %ld step%s skipped (not finite)", skipped, skipped == 1 ? "" : "s");
  if (terminal_.is_tty() && !table_) terminal_.show({});  // erases "testing"
  if (!terminal_.is_tty() || !table_) terminal_.print(label_ + line);
  shown_ = Clock::now();
}

void Progress::show(const Trainer& trainer, const std::string& line) {
  shown_ = Clock::now();
  if (!terminal_.is_tty()) {
    terminal_.print(label_ + line);
    return;
  }
  std::vector<std::string> lines;
  if (table_) lines = table_(trainer);
  lines.push_back(label_ + line);
  terminal_.show(lines);
}

}  // namespace tensorion::lab
