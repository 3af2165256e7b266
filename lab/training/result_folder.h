// The folders that commands write their results to. A folder has results of one kind, and no command writes
// to a folder that has results of a different kind.
#pragma once

#include <filesystem>
#include <stdexcept>

namespace tensorion::lab {

enum class ResultKind { kRun, kComparison, kLaplace, kTightness };

// Normalizes the path: removes ".", ".." and a trailing slash. Throws if the path is empty, or if it is not
// UTF-8 and could not be stored in JSON.
std::filesystem::path result_path(const std::filesystem::path& given);

// Checks that a command may write to the folder. Throws if the folder has results of a different or unknown
// kind, or if it has results of this kind and `resume` is false. The folder need not exist.
void check_owner(const std::filesystem::path& folder, ResultKind kind, bool resume);

// Thrown if another process is writing to the folder.
class FolderBusy : public std::runtime_error {
 public:
  explicit FolderBusy(const std::filesystem::path& folder);
};

// A lock on an existing folder. If another process holds the lock, the constructor waits for it, or throws
// FolderBusy if `wait` is false.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder, bool wait = false);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace tensorion::lab
