#include "lab/io/atomic_file.h"

#include <sys/resource.h>

#include <csignal>

#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::read_bytes;
using testing::write_bytes;

size_t files_in(const testing::TemporaryFolder& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

TEST(AtomicFile, ReplacesTheFileOnlyOnCommit) {
  const testing::TemporaryFolder folder;
  const auto path = folder.file("x");
  write_bytes(path, "old");
  {
    AtomicFile file(path);
    file.write("new ", 4);
    EXPECT_EQ(read_bytes(path), "old");
    file.write("text", 4);
    file.commit();
    EXPECT_EQ(read_bytes(path), "new text");
  }
  EXPECT_EQ(read_bytes(path), "new text");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, KeepsTheOldFileWithoutCommit) {
  const testing::TemporaryFolder folder;
  const auto path = folder.file("x");
  write_bytes(path, "old");
  AtomicFile(path).write("new", 3);
  EXPECT_EQ(read_bytes(path), "old");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, OverwritesTemporaryFileOfKilledWriter) {
  const testing::TemporaryFolder folder;
  const auto path = folder.file("x");
  write_bytes(path + ".tmp", "a longer rest of a file");
  AtomicFile file(path);
  file.write("new", 3);
  file.commit();
  EXPECT_EQ(read_bytes(path), "new");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, KeepsTheOldFileIfTheDiskIsFull) {
  const testing::TemporaryFolder folder;
  const auto path = folder.file("x");
  write_bytes(path, "old");
  // With a limit on the file size, a write fails after some of the bytes, as on a full disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1024, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error<c10::Error>(
      [&] {
        AtomicFile file(path);
        file.write(std::string(4096, 'x').data(), 4096);
      },
      "[tensorion.write] cannot write " + path + ": File too large");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_bytes(path), "old");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, RejectsInvalidPaths) {
  const testing::TemporaryFolder folder;
  expect_error<c10::Error>([&] { AtomicFile file(folder.file("no/x")); },
                           "cannot create " + folder.file("no/x") + ": No such file or directory");
  std::filesystem::create_directory(folder.file("y"));
  write_bytes(folder.file("y/z"), "");
  expect_error<c10::Error>([&] { AtomicFile(folder.file("y")).commit(); }, "rename the temporary file of");
  EXPECT_EQ(files_in(folder), 1U);
}

}  // namespace
}  // namespace tensorion::lab
