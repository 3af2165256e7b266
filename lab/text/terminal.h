// A block of lines at the end of a terminal's output that is drawn anew in place.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace tensorion::lab {

class Terminal {
 public:
  explicit Terminal(std::FILE* out);
  // What is shown stays.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool is_tty() const { return is_tty_; }
  int width() const { return width_; }
  int height() const { return height_; }

  // Puts the lines, cut to the terminal's width, in place of those shown before. For terminals only.
  void show(const std::vector<std::string>& lines);
  // A line that stays, above those shown.
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
