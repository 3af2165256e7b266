// Errors of the command line, for which the program exits with status 2: an option has a value that it cannot
// have, or one that does not go with the others. What is wrong with files and data is any other error (status
// 1).
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace tensorion::lab {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Calls `body`, in which every value that is refused is one of the command line.
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
