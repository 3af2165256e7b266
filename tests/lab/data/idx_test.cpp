#include "lab/data/idx.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::gzip;
using testing::idx;
using testing::noise;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(Idx, ReadsPlainAndGzip) {
  const TemporaryFolder folder;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 5, 7}, {11}, {0}, {2, 0, 4}}) {
    const auto x = noise(shape, 1);
    write_bytes(folder / "plain", idx(x));
    write_bytes(folder / "zipped", gzip(idx(x)));
    EXPECT_TRUE(at::equal(read_idx(folder / "plain", x.dim()), x));
    EXPECT_TRUE(at::equal(read_idx(folder / "zipped", x.dim()), x));
  }
}

TEST(Idx, RejectsInvalidFiles) {
  const TemporaryFolder folder;
  const fs::path path = folder / "file";
  const std::string good = idx(noise({3, 5, 7}, 2));
  const auto expect = [&](const std::string& bytes, const std::string& part) {
    write_bytes(path, bytes);
    expect_error<FileError>([&] { read_idx(path, 3); }, "[tensorion.data] " + path.string() + ": " + part);
  };
  expect("", "expected an IDX file of bytes with 3 dimensions, which starts with 0 0 8 3");
  expect("hello, world, this is not it", "expected an IDX file");
  expect(idx(noise({4}, 3)), "expected an IDX file of bytes with 3 dimensions");
  expect(good.substr(0, 15), "the file ends within its header");
  expect(good.substr(0, good.size() - 1),
         "the file is truncated: expected 105 bytes after the header, got 104");
  expect(good + "x", "expected 105 bytes after the header, got more");

  const std::string zipped = gzip(good);
  expect(zipped.substr(0, zipped.size() / 2), "");
  expect(zipped.substr(0, zipped.size() - 1), "");  // within the checksum
  std::string corrupt = zipped;
  corrupt[zipped.size() - 6] ^= 1;  // the checksum
  expect(corrupt, "cannot read the file: ");

  // Sizes of 2^32 - 1 must cause an error, not an allocation.
  const std::string magic("\0\0\x08\x03", 4);
  const std::string zero(4, '\0'), large(4, '\xff');
  expect(magic + large + std::string("\0\0\1\0\0\0\1\0", 8) + "abc",
         "the file is truncated: expected 281474976645120 bytes after the header, got 3");
  expect(magic + large + large + large + "abc", "the sizes in the header are too large");
  // Regression test: if another size was zero, torch's strides overflowed, and its error did not contain the
  // path.
  expect(magic + zero + large + large, "the sizes in the header are too large");
  expect_error<FileError>([&] { read_idx(folder / "missing", 1); },
                          "missing: cannot open the file: No such file");
}

}  // namespace
}  // namespace tensorion::lab
