#include "lab/io/safetensors.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "lab/io/atomic_file.h"
#include "lab/io/checksum.h"

namespace tensorion::lab {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

using nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxModes = 64;  // torch's own limit

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool},
};

std::string known_dtypes() {
  std::vector<std::string> names;
  for (const auto& [name, type] : kDtypes) names.emplace_back(name);
  return c10::Join(" ", names);
}

// The header's entry for one tensor.
struct Entry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin;
  uint64_t end;
};

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    TORCH_CHECK(descriptor_ >= 0, "[tensorion.safetensors] cannot open ", path_, ": ", std::strerror(errno));
  }
  ~Reader() { ::close(descriptor_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  SafeTensors read() {
    const std::string header = read_header();
    data_start_ = kLengthBytes + header.size();
    SafeTensors result;
    const auto entries = check_header(header, result.metadata);
    for (const auto& entry : entries) result.tensors.emplace(entry.name, read_tensor(entry));
    if (const auto stored = result.metadata.extract(kChecksumKey)) {
      check_checksum(header, entries, result.tensors, stored.mapped());
      result.has_checksum = true;
    }
    return result;
  }

 private:
  // Throws a ValueError that starts with the path of the file.
  template <typename... What>
  void check(bool condition, const What&... what) const {
    TORCH_CHECK_VALUE(condition, "[tensorion.safetensors] ", path_, ": ", what...);
  }

  std::string read_header() {
    struct stat status{};
    TORCH_CHECK(::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode), "[tensorion.safetensors] ",
                path_, " is not a regular file");
    file_bytes_ = static_cast<uint64_t>(status.st_size);
    check(file_bytes_ >= kLengthBytes, "expected at least ", kLengthBytes, " bytes, got ", file_bytes_);
    uint64_t length = 0;
    read_at(0, &length, kLengthBytes);
    check(length <= static_cast<uint64_t>(kMaxHeaderBytes), "the header may have at most ", kMaxHeaderBytes,
          " bytes, got a length of ", length);
    check(length <= file_bytes_ - kLengthBytes, "expected a header of ", length,
          " bytes, but the file ends after ", file_bytes_ - kLengthBytes, " of them");
    std::string header(length, '\0');
    read_at(kLengthBytes, header.data(), length);
    return header;
  }

  json parse(const std::string& header) const {
    std::vector<std::set<std::string>> keys;  // of each object that the parser is inside of
    const auto visit = [&](int depth, json::parse_event_t event, json& parsed) {
      check(depth <= 3, "the header is nested too deeply");
      if (event == json::parse_event_t::object_start) {
        keys.emplace_back();
      } else if (event == json::parse_event_t::object_end) {
        keys.pop_back();
      } else if (event == json::parse_event_t::key) {
        const auto key = parsed.get<std::string>();
        check(keys.back().insert(key).second, "the header has the key \"", key, "\" twice");
      }
      return true;
    };
    try {
      auto parsed = json::parse(header, visit);
      check(parsed.is_object(), "the header must be a JSON object, got ", parsed.type_name());
      return parsed;
    } catch (const json::exception& error) {  // a syntax error, or a number out of the range of double
      check(false, "the header is not valid JSON: ", error.what());
      throw;
    }
  }

  // Returns the entries sorted by their offsets. Together they must cover the data without gaps or overlaps.
  std::vector<Entry> check_header(const std::string& header, Metadata& metadata) const {
    std::vector<Entry> entries;
    const json parsed = parse(header);
    for (const auto& [name, value] : parsed.items()) {
      if (name == kMetadataKey) {
        metadata = check_metadata(value);
      } else {
        entries.push_back(check_entry(name, value));
      }
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    uint64_t expected = 0;
    for (const auto& entry : entries) {
      check(entry.begin >= expected, "tensor \"", entry.name, "\" begins at byte ", entry.begin,
            " and overlaps the tensor before it, which ends at ", expected);
      check(entry.begin == expected, "tensor \"", entry.name, "\" begins at byte ", entry.begin,
            ", which leaves a gap after byte ", expected);
      expected = entry.end;
    }
    check(expected == file_bytes_ - data_start_, "the tensors take ", expected, " bytes, but the file has ",
          file_bytes_ - data_start_, " bytes of data");
    return entries;
  }

  Metadata check_metadata(const json& value) const {
    check(value.is_object(), kMetadataKey, " must map strings to strings, got ", value.type_name());
    Metadata metadata;
    for (const auto& [key, text] : value.items()) {
      check(text.is_string(), kMetadataKey, " must map strings to strings, got ", text.type_name(), " for \"",
            key, "\"");
      metadata.emplace(key, text.get<std::string>());
    }
    return metadata;
  }

  Entry check_entry(const std::string& name, const json& value) const {
    const auto field = [&](const char* key, json::value_t type) -> const json& {
      check(value.is_object() && value.contains(key), "tensor \"", name, "\" has no ", key);
      check(value[key].type() == type, "tensor \"", name, "\": ", key, " must be ",
            type == json::value_t::string ? "a string" : "an array", ", got ", value[key].type_name());
      return value[key];
    };
    const auto dtype_name = field("dtype", json::value_t::string).get<std::string>();
    const auto* dtype = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                     [&](const auto& known) { return dtype_name == known.first; });
    check(dtype != std::end(kDtypes), "tensor \"", name, "\": dtype must be one of ", known_dtypes(),
          ", got ", dtype_name);

    uint64_t bytes = at::elementSize(dtype->second);
    std::vector<int64_t> shape;
    bool empty = false;
    const auto& sizes = field("shape", json::value_t::array);
    check(sizes.size() <= kMaxModes, "tensor \"", name, "\": shape may have at most ", kMaxModes,
          " sizes, got ", sizes.size());
    for (const auto& size : sizes) {
      check(size.is_number_unsigned() && size.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX),
            "tensor \"", name, "\": sizes must be integers in [0, 2^63), got ", size.dump());
      shape.push_back(size.get<int64_t>());
      empty = empty || shape.back() == 0;
      // The limit also applies if another size is zero, because torch multiplies the sizes for the strides.
      check(!__builtin_mul_overflow(bytes, std::max<uint64_t>(1, size.get<uint64_t>()), &bytes) &&
                bytes <= static_cast<uint64_t>(INT64_MAX),
            "tensor \"", name, "\": the shape ", sizes.dump(), " is too large");
    }
    if (empty) bytes = 0;

    const auto& offsets = field("data_offsets", json::value_t::array);
    check(offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
          "tensor \"", name, "\": data_offsets must be two non-negative integers, got ", offsets.dump());
    const auto begin = offsets[0].get<uint64_t>();
    const auto end = offsets[1].get<uint64_t>();
    check(begin <= end && end <= file_bytes_ - data_start_, "tensor \"", name, "\": data_offsets ",
          offsets.dump(), " must be within the data, which has ", file_bytes_ - data_start_, " bytes");
    check(end - begin == bytes, "tensor \"", name, "\": shape ", sizes.dump(), " of ", dtype_name, " takes ",
          bytes, " bytes, but data_offsets ", offsets.dump(), " span ", end - begin);
    return {name, dtype->second, std::move(shape), begin, end};
  }

  at::Tensor read_tensor(const Entry& entry) const {
    auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
    read_at(data_start_ + entry.begin, tensor.mutable_data_ptr(), entry.end - entry.begin);
    if (entry.dtype == at::kBool) {
      const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
      check(std::all_of(bytes, bytes + tensor.numel(), [](uint8_t byte) { return byte <= 1; }), "tensor \"",
            entry.name, "\": BOOL data must be 0 or 1");
    }
    return tensor;
  }

  // Computes the checksum of everything that was read and compares it with the stored one.
  void check_checksum(std::string header, const std::vector<Entry>& entries, const NamedTensors& tensors,
                      const std::string& stored) const {
    const size_t place = find_checksum(header, stored);
    check(place != std::string::npos, "the header was changed after its checksum ", stored, " was written");
    header.replace(place, stored.size(), kZeroChecksum);
    Checksum checksum;
    const uint64_t length = header.size();
    checksum.add(&length, kLengthBytes);
    checksum.add(header.data(), header.size());
    for (const auto& entry : entries) {
      const auto& tensor = tensors.at(entry.name);
      checksum.add(tensor.const_data_ptr(), tensor.nbytes());
    }
    check(checksum.str() == stored, "the file is damaged: its checksum is ", checksum.str(), ", expected ",
          stored);
  }

  void read_at(uint64_t offset, void* target, uint64_t bytes) const {
    auto* rest = static_cast<char*>(target);
    while (bytes > 0) {
      const ssize_t got = ::pread(descriptor_, rest, std::min<uint64_t>(bytes, uint64_t{1} << 30),
                                  static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      TORCH_CHECK(got >= 0, "[tensorion.safetensors] cannot read ", path_, ": ", std::strerror(errno));
      check(got > 0, "the file was truncated while it was being read");
      rest += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
  }

  std::string path_;
  int descriptor_ = -1;
  uint64_t file_bytes_ = 0;
  uint64_t data_start_ = 0;
};

}  // namespace

NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) out[name.substr(prefix.size())] = tensor;
  }
  return out;
}

SafeTensors read_safetensors(const std::string& path) { return Reader(path).read(); }

void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK_VALUE(tensor.defined(), "[tensorion.safetensors] ", path, ": tensor \"", name,
                      "\" is undefined");
  }
  // Sorted by decreasing element size, so that each tensor is aligned to its element size.
  std::vector<std::pair<std::string, at::Tensor>> ordered(tensors.begin(), tensors.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() > b.second.element_size();
  });

  json header = json::object();
  header[kMetadataKey] = metadata;
  header[kMetadataKey][kChecksumKey] = kZeroChecksum;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : ordered) {
    TORCH_CHECK_VALUE(name != kMetadataKey, "[tensorion.safetensors] ", path, ": a tensor must not be named ",
                      kMetadataKey);
    const auto* dtype = std::find_if(
        std::begin(kDtypes), std::end(kDtypes),
        [&, &stored = tensor](const auto& known) { return stored.scalar_type() == known.second; });
    TORCH_CHECK_TYPE(dtype != std::end(kDtypes) && tensor.layout() == at::kStrided,
                     "[tensorion.safetensors] ", path, ": tensor \"", name,
                     "\" must be dense and have one of the dtypes ", known_dtypes(), ", got layout ",
                     tensor.layout(), " and dtype ", tensor.scalar_type());
    const uint64_t end = offset + tensor.nbytes();
    header[name] = {
        {"dtype", dtype->first}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::type_error& error) {
    TORCH_CHECK_VALUE(false, "[tensorion.safetensors] ", path,
                      ": names and metadata must be UTF-8: ", error.what());
  }
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  TORCH_CHECK_VALUE(text.size() <= static_cast<size_t>(kMaxHeaderBytes), "[tensorion.safetensors] ", path,
                    ": the header may have at most ", kMaxHeaderBytes, " bytes, got ", text.size());

  AtomicFile file(path);
  Checksum checksum;
  const auto write = [&](const void* data, size_t bytes) {
    file.write(data, bytes);
    checksum.add(data, bytes);
  };
  const uint64_t length = text.size();
  write(&length, kLengthBytes);
  write(text.data(), text.size());
  for (const auto& [name, tensor] : ordered) {
    const auto dense = tensor.detach().to(at::kCPU).contiguous();
    write(dense.const_data_ptr(), dense.nbytes());
  }
  const auto digits = checksum.str();
  file.overwrite(kLengthBytes + find_checksum(text, kZeroChecksum), digits.data(), digits.size());
  file.commit();
}

}  // namespace tensorion::lab
