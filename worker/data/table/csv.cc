#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "glog/logging.h"
#include "worker/data/mapped_file.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

// Takes what stands before `separator`, or all, from the front of *text.
absl::string_view TakeUntil(char separator, absl::string_view* text) {
  const size_t at = text->find(separator);
  const absl::string_view taken = text->substr(0, at);
  text->remove_prefix(at == absl::string_view::npos ? text->size() : at + 1);
  return taken;
}

// Parses a number, also the last one of a line that ends with \r\n.
bool ParseNumber(absl::string_view field, double* value) {
  field = absl::StripAsciiWhitespace(field);
  if (absl::StartsWith(field, "+")) field.remove_prefix(1);
  const char* const end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, *value);
  return error == std::errc() && stop == end;
}

using Fields = absl::Span<const absl::string_view>;

// Returns true for 0, 1, 2, ..., written as whole numbers.
bool CountsFromZero(Fields fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] != absl::StrCat(i)) return false;
  }
  return true;
}

bool HasNumber(Fields fields) {
  double value = 0;
  return std::any_of(fields.begin(), fields.end(),
                     [&](absl::string_view field) { return ParseNumber(field, &value); });
}

class CsvReader {
 public:
  CsvReader(const std::string& path, const TableSpec& spec) : path_(path), spec_(spec) {}

  absl::StatusOr<TableRows> Read(absl::string_view text) {
    for (int64_t row = 1; !text.empty(); ++row) {
      const absl::string_view line = TakeUntil('\n', &text);
      const bool is_blank = absl::StripAsciiWhitespace(line).empty();
      if (is_blank && absl::StripAsciiWhitespace(text).empty()) break;
      RETURN_IF_ERROR(AddLine(line, row));
    }
    if (rows_.size == 0) return absl::InvalidArgumentError(absl::StrCat(path_, ": has no rows"));
    rows_.floats = Share(std::move(features_));
    return std::move(rows_);
  }

 private:
  std::string Name(int64_t row) const { return absl::StrCat("row ", row, " of ", path_); }

  absl::Status AddLine(absl::string_view line, int64_t row) {
    if (absl::StrContains(line, '"')) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(row), " has a quote (\"); write fields without quotes"));
    }
    if (row == 1 && IsLineOfNames(line)) return absl::OkStatus();
    fields_.clear();
    RETURN_IF_ERROR(Split(line, row));
    if (row == 1) WarnOfCount();
    return AddFields(row);
  }

  bool IsLineOfNames(absl::string_view line) {
    if (line.empty()) return false;
    std::vector<absl::string_view> names;
    for (const absl::string_view field : absl::StrSplit(line, ',')) {
      names.push_back(absl::StripAsciiWhitespace(field));
    }
    const Fields columns(names);
    begins_with_index_ = columns[0].empty();
    if (!HasNumber(columns)) return true;
    if (!AreNumberedColumns(columns)) return false;
    LOG_FIRST_N(WARNING, 1) << Name(1) << " numbers its columns from 0, as pandas does for an array: "
                            << "it is skipped as a header, here and in the other data files";
    return true;
  }

  // Returns true for the names that pandas writes for the columns of an array: 0, 1, 2, ... A frame that was
  // joined from features and labels counts each part from 0, or has a name in words for its labels.
  bool AreNumberedColumns(Fields columns) const {
    constexpr size_t kFewest = 3;  // fewer may well be a sample
    const auto features = static_cast<size_t>(spec_.shape.size());
    if (columns.size() >= kFewest && CountsFromZero(columns)) return true;
    if (columns.size() <= features) return false;
    const size_t labels = columns.size() - features;
    const Fields of_features = columns.subspan(spec_.labels_first ? labels : 0, features);
    const Fields of_labels = columns.subspan(spec_.labels_first ? 0 : features, labels);
    if (!CountsFromZero(of_features) || of_labels[0].empty()) return false;
    return !HasNumber(of_labels) || (features >= kFewest && CountsFromZero(of_labels));
  }

  // Numbers that count are more often names than a sample, but 1, 2, 3 or 0.0, 1.0, 2.0 may be one.
  void WarnOfCount() const {
    constexpr size_t kFewest = 3;
    const double first = fields_.empty() ? -1 : fields_[0];
    bool counts = fields_.size() >= kFewest && (first == 0 || first == 1);
    for (size_t i = 0; i < fields_.size(); ++i)
      counts = counts && fields_[i] == first + static_cast<double>(i);
    if (!counts) return;
    LOG(WARNING) << Name(1) << " counts from " << first
                 << " and is read as a sample; delete it if it is a header";
  }

  // Splits a line into fields_.
  absl::Status Split(absl::string_view line, int64_t row) {
    const absl::string_view whole = line;
    bool more = !absl::StripAsciiWhitespace(line).empty();
    while (more) {
      more = absl::StrContains(line, ',');
      const absl::string_view field = TakeUntil(',', &line);
      double value = 0;
      if (!ParseNumber(field, &value)) return NotANumber(whole, field, row);
      fields_.push_back(value);
    }
    return absl::OkStatus();
  }

  // `field` is the one of `line` behind those in fields_.
  absl::Status NotANumber(absl::string_view line, absl::string_view field, int64_t row) const {
    constexpr size_t kShown = 40;
    field = absl::StripAsciiWhitespace(field);
    return absl::InvalidArgumentError(absl::StrCat(Name(row), ": column ", fields_.size() + 1, " is \"",
                                                   field.substr(0, kShown), "\", not a number",
                                                   NotANumberHint(line, field, row)));
  }

  std::string NotANumberHint(absl::string_view line, absl::string_view field, int64_t row) const {
    if (absl::StrContains(field, ';')) return "; fields are separated by commas, not by semicolons (;)";
    if (absl::StrContains(field, '\t')) return "; fields are separated by commas, not by tabs";
    if (!absl::StrContains(line, ',') && absl::StrContains(field, ' ')) {
      return "; fields are separated by commas, not by spaces";
    }
    if (!IsOfLabels(line) || field.empty()) {
      return row == 1 ? absl::StrCat("; a header has no numbers", IndexHint()) : "";
    }
    return spec_.target.is_real()
               ? std::string("; targets are numbers")
               : absl::StrCat("; labels are class numbers, from 0 to ", spec_.target.classes - 1);
  }

  // Returns true if the column behind those in fields_ is one of the labels' in a row of the right width.
  bool IsOfLabels(absl::string_view line) const {
    const auto column = static_cast<int64_t>(fields_.size());
    const int64_t labels = std::count(line.begin(), line.end(), ',') + 1 - spec_.shape.size();
    return spec_.labels_first ? column < labels : column >= spec_.shape.size();
  }

  const char* IndexHint() const {
    return begins_with_index_ ? "; the first name in row 1 is empty, "
                                "like that of pandas' index: write the file with to_csv(index=False)"
                              : "";
  }

  absl::Status AddFields(int64_t row) {
    const int64_t features = spec_.shape.size(), columns = static_cast<int64_t>(fields_.size());
    const int64_t labels = columns - features;
    if (!IsLabelWidth(spec_.target, labels)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(row), " has ", columns, " columns; data.table.shape, ", ToString(spec_.shape),
                       ", makes ", features, ", and labels ", LabelWidths(spec_.target), IndexHint()));
    }
    const absl::Span<const double> all(fields_);
    const int64_t begin = spec_.labels_first ? labels : 0;
    RETURN_IF_ERROR(AddFeatures(
        spec_, 1, [&](int64_t i) { return fields_[begin + i]; },
        [&](int64_t i) { return absl::StrCat(Name(row), ": column ", begin + i + 1); }, &features_));
    ++rows_.size;
    return AddLabels(
        spec_, all.subspan(spec_.labels_first ? 0 : features, labels), row,
        [this](int64_t at) { return Name(at); }, &rows_);
  }

  const std::string& path_;
  const TableSpec& spec_;
  std::vector<double> fields_;  // of a line
  std::vector<float> features_;
  TableRows rows_;
  bool begins_with_index_ = false;  // the first of the line's names is empty
};

}  // namespace

absl::StatusOr<TableRows> ReadCsv(const std::string& path, const TableSpec& spec) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const absl::string_view text, Utf8Text(file->text(), path));
  return CsvReader(path, spec).Read(text);
}

}  // namespace catchment
