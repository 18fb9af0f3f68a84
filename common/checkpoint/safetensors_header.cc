#include "common/checkpoint/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kMetadata[] = "__metadata__";
constexpr int64_t kValueBytes = sizeof(float);

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

// Finds a key that occurs twice in an object. It does not stand in a callback of json::parse, with which the
// parser looks through all earlier elements of an object at the end of each.
class RepeatedKey final : public nlohmann::json_sax<json> {
 public:
  const std::optional<std::string>& key() const { return key_; }

  bool start_object(size_t elements) override {
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& key) override {
    if (!keys_.back().insert(key).second) key_ = key;
    return !key_.has_value();
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool value) override { return true; }
  bool number_integer(int64_t value) override { return true; }
  bool number_unsigned(uint64_t value) override { return true; }
  bool number_float(double value, const std::string& text) override { return true; }
  bool string(std::string& value) override { return true; }
  bool binary(json::binary_t& value) override { return true; }
  bool start_array(size_t elements) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& token, const json::exception& error) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that have begun
  std::optional<std::string> key_;
};

// Parses a JSON object. Fails if a key occurs twice in one, which JSON parsers accept.
absl::StatusOr<json> ParseJson(const std::string& text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || !parsed.is_object()) return Invalid("its header is not a JSON object");
  RepeatedKey repeated;
  json::sax_parse(text, &repeated);
  if (repeated.key()) return Invalid(absl::StrCat("its header names \"", *repeated.key(), "\" twice"));
  return parsed;
}

bool IsListOfSizes(const json& tensor, const char* key) {
  const auto list = tensor.find(key);
  return list != tensor.end() && list->is_array() &&
         std::all_of(list->begin(), list->end(), [](const json& item) {
           return item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT64_MAX};
         });
}

// Returns the product of the shape, or limit + 1 if it is more than `limit`.
int64_t CountValues(const std::vector<int64_t>& shape, int64_t limit) {
  if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
  __int128 count = 1;
  for (int64_t dimension : shape) count = std::min<__int128>(count * dimension, __int128{limit} + 1);
  return static_cast<int64_t>(count);
}

absl::StatusOr<TensorEntry> ParseTensor(const std::string& name, const json& tensor, int64_t data_bytes) {
  const auto wrong = [&](const auto&... what) {
    return Invalid(absl::StrCat("tensor \"", name, "\": ", what...));
  };
  if (!tensor.is_object()) return wrong("is not a JSON object");
  const auto dtype = tensor.find("dtype");
  if (dtype == tensor.end() || !dtype->is_string()) return wrong("has no dtype");
  if (*dtype != "F32") return wrong("dtype is ", dtype->get<std::string>(), ", but only F32 is supported");
  if (!IsListOfSizes(tensor, "shape")) return wrong("shape is not a list of sizes");
  if (!IsListOfSizes(tensor, "data_offsets") || tensor["data_offsets"].size() != 2) {
    return wrong("data_offsets are not two offsets");
  }
  const int64_t begin = tensor["data_offsets"][0].get<int64_t>();
  const int64_t end = tensor["data_offsets"][1].get<int64_t>();
  if (begin > end || end > data_bytes) {
    return wrong("data_offsets [", begin, ", ", end, "] are not within the file's ", data_bytes,
                 " bytes of values");
  }
  TensorEntry entry{name, tensor["shape"].get<std::vector<int64_t>>(), begin, 0};
  entry.size = CountValues(entry.shape, data_bytes);
  if (entry.size * kValueBytes != end - begin) {
    return wrong("shape ", absl::StrJoin(entry.shape, "x"), " does not need the ", end - begin,
                 " bytes of its data_offsets");
  }
  return entry;
}

absl::Status ParseMetadata(const json& metadata, std::map<std::string, std::string>* out) {
  if (!metadata.is_object()) return Invalid("its __metadata__ is not a JSON object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) return Invalid(absl::StrCat("its __metadata__ \"", key, "\" is not a string"));
    (*out)[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

// Checks that the tensors cover all bytes without gaps or overlaps.
absl::Status CheckCoverage(const std::vector<TensorEntry>& tensors, int64_t data_bytes) {
  int64_t covered = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != covered) {
      return Invalid(absl::StrCat("tensor \"", tensor.name, "\" begins at byte ", tensor.begin,
                                  ", but the previous one ",
                                  tensor.begin < covered ? "overlaps it: it ends at " : "ends at ", covered));
    }
    covered += tensor.size * kValueBytes;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return Invalid(absl::StrCat("its tensors have ", covered, " bytes, but the file has ", data_bytes));
}

// `replace` prevents the library from throwing.
std::string Dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

absl::Status CheckNames(const std::vector<TensorEntry>& tensors) {
  std::set<std::string> names;
  for (const TensorEntry& tensor : tensors) {
    const auto wrong = [&tensor](const char* what) {
      return Invalid(absl::StrCat("tensor \"", tensor.name, "\" ", what));
    };
    if (!names.insert(tensor.name).second) return wrong("appears twice; names must be distinct");
    if (tensor.name == kMetadata) return wrong("has a name that the format reserves");
    if (json::parse(Dump(tensor.name)) != tensor.name) return wrong("has a name that is not UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FormatHeader(const SafetensorsHeader& header) {
  RETURN_IF_ERROR(CheckNames(header.tensors));
  // The text is not made as one ordered_json, which compares each new key with all others.
  std::string text = "{";
  const auto add = [&text](const std::string& key, const ordered_json& value) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", Dump(key), ":", Dump(value));
  };
  if (!header.metadata.empty()) add(kMetadata, header.metadata);
  for (const TensorEntry& tensor : header.tensors) {
    add(tensor.name, {{"dtype", "F32"},
                      {"shape", tensor.shape},
                      {"data_offsets", {tensor.begin, tensor.begin + tensor.size * kValueBytes}}});
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(const std::string& text, int64_t data_bytes) {
  ASSIGN_OR_RETURN(const auto parsed, ParseJson(text));
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadata) {
      RETURN_IF_ERROR(ParseMetadata(value, &header.metadata));
      continue;
    }
    ASSIGN_OR_RETURN(auto tensor, ParseTensor(name, value, data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::make_pair(a.begin, a.size) < std::make_pair(b.begin, b.size);
  });
  RETURN_IF_ERROR(CheckCoverage(header.tensors, data_bytes));
  return header;
}

}  // namespace catchment
