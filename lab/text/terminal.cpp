#include "lab/text/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tensorion::lab {

Terminal::Terminal(std::FILE* out, bool is_live) : out_(out) {
  const char* term = std::getenv("TERM");
  is_tty_ = is_live && ::isatty(::fileno(out)) != 0 && term != nullptr && std::string_view(term) != "dumb";
  winsize size{};
  if (is_tty_ && ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    width_ = size.ws_col;
    height_ = size.ws_row;
  }
}

Terminal::~Terminal() { std::fflush(out_); }

void Terminal::show(const std::vector<std::string>& lines) {
  erase();
  shown_ = lines;
  draw();
}

void Terminal::print(const std::string& line) {
  erase();
  std::fprintf(out_, "%s\n", line.c_str());
  draw();
}

void Terminal::erase() {
  // Moves the cursor up to the first line shown and clears everything below.
  if (!shown_.empty()) std::fprintf(out_, "\x1b[%zuF\x1b[J", shown_.size());
}

void Terminal::draw() {
  winsize size{};  // the user may have resized the window
  if (is_tty_ && ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1) width_ = size.ws_col;
  for (const auto& line : shown_) {
    std::fprintf(out_, "%s\n", line.substr(0, static_cast<size_t>(width_ - 1)).c_str());
  }
  std::fflush(out_);
}

}  // namespace tensorion::lab
