#include "lab/io/file.h"

#include <unistd.h>

#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using tensorion::testing::expect_error;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(File, ReadsBytesAndLines) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\xff\n", 5);
  write_bytes(folder / "x", bytes);
  EXPECT_EQ(read_file(folder / "x"), bytes);
  write_bytes(folder / "lines", "one\r\n\ntwo words\nlast");
  EXPECT_EQ(read_lines(folder / "lines"), (std::vector<std::string>{"one", "", "two words", "last"}));
  write_bytes(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
  EXPECT_TRUE(read_lines(folder / "empty").empty());
}

TEST(File, ListsFoldersInOrderWithoutHiddenEntries) {
  const TemporaryFolder folder;
  for (const char* name : {"b/x", "a.jpg", "B", ".hidden", "a"}) write_bytes(folder / name, "");
  std::vector<std::string> names;
  for (const auto& entry : list_folder(folder.path())) {
    names.push_back(entry.name);
    EXPECT_EQ(entry.is_folder, entry.name == "b");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"B", "a", "a.jpg", "b"}));
}

TEST(File, DistinguishesFilesAndFolders) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", "");
  EXPECT_TRUE(is_file(folder / "x") && !is_folder(folder / "x"));
  EXPECT_TRUE(is_folder(folder.path()) && !is_file(folder.path()));
  EXPECT_FALSE(is_file(folder / "y") || is_folder(folder / "y") || is_file(folder / "x/y"));
}

TEST(File, ErrorsContainThePath) {
  const TemporaryFolder folder;
  const std::string missing = (folder / "missing").string();
  expect_error<FileError>([&] { read_file(missing); },
                          "[tensorion.data] " + missing + ": cannot open the file: No such file");
  expect_error<FileError>([&] { read_file(folder.path()); }, "expected a file, got a folder");
  expect_error<FileError>([&] { list_folder(missing); }, missing + ": cannot list the folder: No such file");
  write_bytes(folder / "x", "");
  expect_error<FileError>([&] { list_folder(folder / "x"); }, "cannot list the folder: Not a directory");
}

TEST(File, ReportsFoldersWithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is forbidden to root";
  const TemporaryFolder folder;
  write_bytes(folder / "closed/x", "");
  fs::permissions(folder / "closed", fs::perms::none);
  expect_error<FileError>([&] { list_folder(folder / "closed"); },
                          "closed: cannot list the folder: Permission");
  expect_error<FileError>([&] { is_file(folder / "closed/x"); }, "closed/x: cannot access it: Permission");
  expect_error<FileError>([&] { read_file(folder / "closed/x"); },
                          "closed/x: cannot open the file: Permission");
  fs::permissions(folder / "closed", fs::perms::owner_all);
}

}  // namespace
}  // namespace tensorion::lab
