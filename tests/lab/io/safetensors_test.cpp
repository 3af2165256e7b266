#include "lab/io/safetensors.h"

#include <cstring>

#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::read_bytes;
using testing::write_bytes;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

// Builds a file: the length of the header, the header and `data` bytes of data.
std::string file_bytes(const std::string& header, size_t data) {
  return with_length(header.size(), header + std::string(data, '\1'));
}

class SafeTensorsTest : public ::testing::Test {
 protected:
  // Expects that reading these bytes throws an error that contains the path and `part`.
  void expect_refused(const std::string& bytes, const std::string& part) {
    write_bytes(path_, bytes);
    expect_error<c10::ValueError>([&] { read_safetensors(path_); },
                                  "[tensorion.safetensors] " + path_ + ": ");
    expect_error<c10::ValueError>([&] { read_safetensors(path_); }, part);
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.file("x.safetensors");
};

TEST_F(SafeTensorsTest, ReadsExampleOfTheFormat) {
  std::string bytes =
      file_bytes(R"({"__metadata__":{"format":"pt"},"b":{"shape":[2],"dtype":"I16","data_offsets":[8,12]},)"
                 R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   )",
                 0);
  const float a[] = {1.5F, -2.0F};
  const int16_t b[] = {-3, 300};
  bytes.append(reinterpret_cast<const char*>(a), sizeof(a))
      .append(reinterpret_cast<const char*>(b), sizeof(b));
  write_bytes(path_, bytes);
  const auto file = read_safetensors(path_);
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_TRUE(at::equal(file.tensors.at("a"), at::tensor({1.5F, -2.0F}).view({1, 2})));
  EXPECT_TRUE(at::equal(file.tensors.at("b"), at::tensor({-3, 300}, at::kShort)));
  EXPECT_EQ(file.metadata, (Metadata{{"format", "pt"}}));
}

TEST_F(SafeTensorsTest, RoundTripIsBitwiseForEveryDtypeShapeAndStride) {
  NamedTensors tensors;
  const auto source = tensorion::testing::gaussian({3, 4, 5}, 1) * 50.0;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kBool}) {
    const std::string name = c10::toString(dtype);
    tensors[name] = (dtype == at::kByte ? source.abs() : source).to(dtype);
    tensors[name + ".transposed"] = tensors[name].permute({2, 0, 1});
    tensors[name + ".strided"] = tensors[name].slice(1, 0, 4, 2);
    tensors[name + ".scalar"] = tensors[name][0][0][0].clone();
    tensors[name + ".empty"] = at::empty({0, 3}, at::TensorOptions().dtype(dtype));
  }
  tensors["not finite"] = at::tensor({NAN, INFINITY, -0.0F});
  tensors["na\"me\n\xc3\xa9"] = at::ones({2}).requires_grad_();
  const Metadata metadata{{"format", "pt"}, {"epoch", "3"}, {"quote", "\"\\"}};
  write_safetensors(path_, tensors, metadata);
  const auto file = read_safetensors(path_);
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto& read = file.tensors.at(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(read.sizes(), tensor.sizes()) << name;
    const auto dense = tensor.detach().contiguous();
    if (dense.numel() == 0) continue;  // no memory to compare
    EXPECT_EQ(std::memcmp(read.const_data_ptr(), dense.const_data_ptr(), dense.nbytes()), 0) << name;
  }
}

TEST_F(SafeTensorsTest, WritesDeterministicAlignedBytes) {
  const NamedTensors tensors{
      {"a", at::ones({3}, at::kByte)}, {"b", at::ones({2}, at::kDouble)}, {"c", at::ones({5})}};
  write_safetensors(path_, tensors, {{"k", "v"}});
  const auto bytes = read_bytes(path_);
  write_safetensors(path_, tensors, {{"k", "v"}});
  EXPECT_EQ(read_bytes(path_), bytes);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(bytes.substr(8, length),
            // The checksum was computed with Python's zlib.crc32.
            R"({"__metadata__":{"k":"v","tensorion_crc32":"7727ee2a"},)"
            R"("a":{"data_offsets":[36,39],"dtype":"U8","shape":[3]},)"
            R"("b":{"data_offsets":[0,16],"dtype":"F64","shape":[2]},)"
            R"("c":{"data_offsets":[16,36],"dtype":"F32","shape":[5]}})" +
                std::string(6, ' '));
  EXPECT_EQ(bytes.size(), 8 + length + 39);
}

TEST_F(SafeTensorsTest, AcceptsFilesWithoutTensors) {
  write_safetensors(path_, {});
  const auto file = read_safetensors(path_);
  EXPECT_TRUE(file.tensors.empty());
  EXPECT_TRUE(file.metadata.empty());
}

TEST_F(SafeTensorsTest, RejectsEveryFlippedBit) {
  write_safetensors(path_,
                    {{"a", at::arange(5)}, {"empty", at::ones({0, 3})}, {"b", at::ones({3}, at::kBool)}},
                    {{"k", "v"}});
  const auto good = read_bytes(path_);
  EXPECT_TRUE(read_safetensors(path_).has_checksum);
  // If the flipped bit is in the key of the checksum, the file counts as one without a checksum.
  const size_t key = good.find("tensorion_crc32"), key_end = key + std::strlen("tensorion_crc32");
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    auto bytes = good;
    bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << (i % 8)));
    write_bytes(path_, bytes);
    try {
      EXPECT_FALSE(read_safetensors(path_).has_checksum) << "bit " << i % 8 << " of byte " << i / 8;
      EXPECT_TRUE(key <= i / 8 && i / 8 < key_end) << "bit " << i % 8 << " of byte " << i / 8;
    } catch (const c10::ValueError& error) {
      EXPECT_NE(std::string(error.what()).find(path_ + ": "), std::string::npos) << error.what();
    }
  }
}

TEST_F(SafeTensorsTest, RejectsWrongChecksum) {
  write_safetensors(path_, {{"a", at::ones({5})}});
  auto bytes = read_bytes(path_);
  bytes.back() ^= 1;
  expect_refused(bytes, "the file is damaged: its checksum is ");
  // Another program may have rewritten the header but kept the metadata.
  bytes = read_bytes(path_);
  const auto colon = bytes.find(":\"", bytes.find("tensorion_crc32"));
  expect_refused(bytes.substr(0, colon + 1) + " " + bytes.substr(colon + 1, bytes.find("  ") - colon - 1) +
                     bytes.substr(bytes.find("  ") + 1),
                 "the header was changed after its checksum ");
}

TEST_F(SafeTensorsTest, RejectsEveryTruncation) {
  write_safetensors(path_, {{"a", at::ones({2, 3})}, {"b", at::ones({1}, at::kBool)}});
  const auto bytes = read_bytes(path_);
  for (size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size), "");
  expect_refused(bytes + "x", "the tensors take 25 bytes, but the file has 26 bytes of data");
  expect_refused("", "expected at least 8 bytes, got 0");
  expect_refused(bytes.substr(0, 20), "the file ends after 12 of them");
}

TEST_F(SafeTensorsTest, ReadsOrRejectsDamagedHeaders) {
  write_safetensors(path_, {{"a", at::ones({2, 3})}, {"b", at::ones({4}, at::kBool)}}, {{"k", "v"}});
  const auto good = read_bytes(path_);
  const auto header_end = good.size() - 28;
  const std::string alphabet = "0123456789[]{},:\"-.eE \\\xff";
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    auto bytes = good;
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const auto at = random() % header_end;
      const char other = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0: bytes[at] = other; break;
        case 1: bytes.insert(at, 1, other); break;
        default: bytes.erase(at, 1 + random() % 5);
      }
    }
    write_bytes(path_, bytes);
    try {
      read_safetensors(path_);
    } catch (const c10::ValueError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST_F(SafeTensorsTest, RejectsInvalidHeaderLengths) {
  expect_refused(with_length(3, "{}"), "expected a header of 3 bytes, but the file ends after 2 of them");
  expect_refused(with_length(UINT64_MAX, "{}"),
                 "the header may have at most 100000000 bytes, got a length of 18446744073709551615");
  expect_refused(with_length(100'000'001, "{}"), "got a length of 100000001");
}

TEST_F(SafeTensorsTest, RejectsInvalidHeaders) {
  expect_refused(file_bytes("", 0), "the header is not valid JSON");
  expect_refused(file_bytes("{\"a\":", 0), "the header is not valid JSON");
  expect_refused(file_bytes("{} {}", 0), "the header is not valid JSON");
  expect_refused(file_bytes("{\"\xff\":1}", 0), "the header is not valid JSON");
  // Regression test: this error came from the JSON library and did not contain the path.
  expect_refused(file_bytes("{\"a\":1e999}", 0), "the header is not valid JSON");
  expect_refused(file_bytes("[]", 0), "the header must be a JSON object, got array");
  expect_refused(file_bytes(std::string(1000, '['), 0), "the header is nested too deeply");
  expect_refused(file_bytes(R"({"a":1})", 0), "tensor \"a\" has no dtype");
  expect_refused(file_bytes(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "tensor \"a\" has no data_offsets");
  // Regression test: the shape was read before it was checked to be present.
  expect_refused(file_bytes(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1), "tensor \"a\" has no shape");
  expect_refused(file_bytes(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1),
                 "tensor \"a\": shape must be an array, got number");
  expect_refused(file_bytes(R"({"__metadata__":{"k":1}})", 0),
                 "must map strings to strings, got number for \"k\"");
  expect_refused(file_bytes(R"({"__metadata__":"k"})", 0), "must map strings to strings, got string");
}

TEST_F(SafeTensorsTest, RejectsDuplicateNames) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_refused(file_bytes(R"({"a":)" + tensor + R"(,"a":)" + tensor + "}", 1),
                 "the header has the key \"a\" twice");
  expect_refused(file_bytes(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
                 "the header has the key \"dtype\" twice");
  // The same name may occur in different objects.
  write_bytes(path_, file_bytes(R"({"__metadata__":{"a":"a"},"a":)" + tensor + "}", 1));
  EXPECT_EQ(read_safetensors(path_).tensors.size(), 1U);
}

TEST_F(SafeTensorsTest, ChecksDtypesShapesAndOffsets) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets,
                      size_t data) {
    return file_bytes(
        R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
        data);
  };
  expect_refused(one("F8_E4M3", "[1]", "[0,1]", 1),
                 "tensor \"w\": dtype must be one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL, got F8_E4M3");
  expect_refused(one("F32", "[2]", "[0,4]", 4),
                 "tensor \"w\": shape [2] of F32 takes 8 bytes, but data_offsets [0,4] span 4");
  expect_refused(one("F32", "[2]", "[0,8]", 4),
                 "data_offsets [0,8] must be within the data, which has 4 bytes");
  expect_refused(one("U8", "[2]", "[4,2]", 4), "data_offsets [4,2] must be within the data");
  expect_refused(one("U8", "[2]", "[0]", 2), "data_offsets must be two non-negative integers, got [0]");
  expect_refused(one("U8", "[2]", "[-1,1]", 2), "data_offsets must be two non-negative integers, got [-1,1]");
  expect_refused(one("U8", "[2]", "[0,2.0]", 2),
                 "data_offsets must be two non-negative integers, got [0,2.0]");
  expect_refused(one("U8", "[2]", "[0,99999999999999999999]", 2),
                 "data_offsets must be two non-negative integers");
  expect_refused(one("U8", "[-2]", "[0,2]", 2), "sizes must be integers in [0, 2^63), got -2");
  expect_refused(one("U8", "[2.0]", "[0,2]", 2), "sizes must be integers in [0, 2^63), got 2.0");
  expect_refused(one("U8", "[18446744073709551615]", "[0,2]", 2),
                 "integers in [0, 2^63), got 1844674407370955161");
  // 2^32 * 2^32 and 4 * 2^62 overflow to 0 in 64 bits. They are rejected even if another size is zero.
  expect_refused(one("U8", "[4294967296,4294967296]", "[0,0]", 0), "[4294967296,4294967296] is too large");
  expect_refused(one("F32", "[4611686018427387904]", "[0,0]", 0), "is too large");
  expect_refused(one("U8", "[0,4294967296,4294967296]", "[0,0]", 0), "is too large");
  std::string ones = "[1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  expect_refused(one("U8", ones + "]", "[0,1]", 1), "shape may have at most 64 sizes, got 65");
  std::string bytes = one("BOOL", "[2]", "[0,2]", 2);
  bytes.back() = '\2';
  expect_refused(bytes, "tensor \"w\": BOOL data must be 0 or 1");
}

TEST_F(SafeTensorsTest, RejectsOverlapsAndGaps) {
  const auto two = [](const std::string& a, const std::string& b, size_t data) {
    return file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                          R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}",
                      data);
  };
  expect_refused(two("[0,2]", "[1,3]", 3),
                 "tensor \"b\" begins at byte 1 and overlaps the tensor before it, which ends at 2");
  expect_refused(two("[0,2]", "[0,2]", 2), "overlaps the tensor before it");
  expect_refused(two("[0,2]", "[3,5]", 5), "tensor \"b\" begins at byte 3, which leaves a gap after byte 2");
  expect_refused(two("[3,5]", "[1,3]", 5), "tensor \"b\" begins at byte 1, which leaves a gap after byte 0");
  expect_refused(two("[0,2]", "[2,4]", 6), "the tensors take 4 bytes, but the file has 6 bytes of data");
  write_bytes(path_, two("[2,4]", "[0,2]", 4));
  EXPECT_EQ(read_safetensors(path_).tensors.size(), 2U);
}

TEST_F(SafeTensorsTest, ReportsFilesThatCannotBeReadOrWritten) {
  expect_error<c10::Error>([&] { read_safetensors(folder_.file("none")); },
                           "cannot open " + folder_.file("none") + ": No such file or directory");
  expect_error<c10::Error>([&] { read_safetensors(folder_.path()); }, "is not a regular file");
  expect_error<c10::Error>([&] { write_safetensors(folder_.file("no/x"), {}); }, "No such file or directory");
  write_safetensors(path_, {{"a", at::ones({2})}});
  const auto before = read_bytes(path_);
  expect_error<c10::ValueError>([&] { write_safetensors(path_, {{"__metadata__", at::ones({1})}}); },
                                "a tensor must not be named __metadata__");
  expect_error<c10::ValueError>([&] { write_safetensors(path_, {{"\xff", at::ones({1})}}); },
                                "must be UTF-8");
  expect_error<c10::ValueError>([&] { write_safetensors(path_, {{"u", at::Tensor()}}); },
                                "tensor \"u\" is undefined");
  expect_error<c10::TypeError>([&] { write_safetensors(path_, {{"c", at::ones({1}, at::kComplexFloat)}}); },
                               "tensor \"c\" must be dense and have one of the dtypes");
  EXPECT_EQ(read_bytes(path_), before);
}

}  // namespace
}  // namespace tensorion::lab
