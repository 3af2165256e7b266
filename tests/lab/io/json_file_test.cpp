#include "lab/io/json_file.h"

#include <nlohmann/json.hpp>

#include "lab/io/file.h"
#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using tensorion::testing::expect_error;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(JsonFile, RoundTrips) {
  const TemporaryFolder folder;
  const ordered_json value{{"b", {1, 2.5, nullptr}}, {"a", "text"}};
  write_json(folder / "x.json", value);
  EXPECT_EQ(read_bytes(folder.file("x.json")), value.dump(2) + '\n');
  json found;
  read_json(folder / "x.json", [&](const json& read) { found = read; });
  EXPECT_EQ(found, json(value));
}

TEST(JsonFile, ErrorsContainPathAndLine) {
  const TemporaryFolder folder;
  const auto path = folder.file("x.json");
  const auto take_number = [](const json& value) { value.at("n").get<int>(); };
  write_bytes(path, R"({"n": )");
  expect_error<FileError>([&] { read_json(path, take_number); }, path + ": not valid: ");
  write_bytes(path, R"({"m": 1})");
  expect_error<FileError>([&] { read_json(path, take_number); }, path + ": not valid: ");
  write_bytes(path, "{\"n\": 1}\n{\"n\": \"one\"}\n");
  expect_error<FileError>([&] { read_json_lines(path, take_number); }, path + ": line 2 is not valid: ");
}

TEST(JsonFile, SkipsIncompleteLastLine) {
  const TemporaryFolder folder;
  write_bytes(folder / "x.jsonl", "1\n2\n3");
  std::vector<int> found;
  read_json_lines(folder / "x.jsonl", [&](const json& value) { found.push_back(value.get<int>()); });
  EXPECT_EQ(found, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace tensorion::lab
