// Terminal output whose last lines can be redrawn in place.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace tensorion::lab {

class Terminal {
 public:
  // If `is_live` is false, lines are only printed, one after the other, even on a terminal.
  explicit Terminal(std::FILE* out, bool is_live = true);
  // Leaves the lines that are shown on the screen.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // False if the output goes to a file or a pipe, or is not live.
  bool is_tty() const { return is_tty_; }
  int width() const { return width_; }
  int height() const { return height_; }

  // Replaces the lines shown before, truncating the new ones to the width of the terminal. Call it only if
  // is_tty() is true.
  void show(const std::vector<std::string>& lines);
  // Prints a permanent line above the lines shown.
  void print(const std::string& line);

 private:
  void erase();
  void draw();

  std::FILE* out_;
  bool is_tty_;
  int width_ = 80;
  int height_ = 24;
  std::vector<std::string> shown_;
};

}  // namespace tensorion::lab
