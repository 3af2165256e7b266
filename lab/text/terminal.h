// A terminal, on which a block of lines at the end of the output can be redrawn in place.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace tensorion::lab {

class Terminal {
 public:
  explicit Terminal(std::FILE* out);
  // The lines that are shown stay.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // False if the output goes to a file or a pipe.
  bool is_tty() const { return is_tty_; }
  int width() const { return width_; }
  int height() const { return height_; }

  // Replaces the lines shown before by these, cut to the terminal's width. Only if is_tty().
  void show(const std::vector<std::string>& lines);
  // Prints a line that stays, above those shown.
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
