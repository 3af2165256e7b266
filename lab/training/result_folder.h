// The folders that commands write their results into. Each belongs to one kind of results, and no command
// writes into a folder of another kind.
#pragma once

#include <filesystem>

namespace tensorion::lab {

enum class ResultKind { kRun, kComparison, kLaplace, kTightness };

// The path as results name it: without "." and "..", without a slash at its end. It is an error if the path
// is empty or not UTF-8, which JSON cannot hold.
std::filesystem::path result_path(const std::filesystem::path& given);

// Throws if the folder has results of another kind, or files that cannot be told, or if it has results of
// this kind and `resume` is false. A folder without results, or none at all, is free.
void check_owner(const std::filesystem::path& folder, ResultKind kind, bool resume);

// Held while a process writes into a folder, which must exist. Throws if another process holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace tensorion::lab
