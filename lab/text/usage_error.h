// Errors in the command line, for which the program exits with status 2: an option has an invalid value, or
// it conflicts with another option. Problems with files and data are other errors, with exit status 1.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace tensorion::lab {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Calls `body` and turns its ValueErrors and TypeErrors into UsageErrors. Use it if all values that `body`
// may reject come from the command line.
template <typename Body>
auto checked_usage(const Body& body) {
  try {
    return body();
  } catch (const c10::ValueError& error) {
    throw UsageError(error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    throw UsageError(error.what_without_backtrace());
  }
}

}  // namespace tensorion::lab
