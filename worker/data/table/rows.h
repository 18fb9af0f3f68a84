// The rows of a table's file, and the checks that all formats have in common.
#ifndef CATCHMENT_WORKER_DATA_TABLE_ROWS_H_
#define CATCHMENT_WORKER_DATA_TABLE_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/model_shapes.h"
#include "worker/data/sample_content.h"

namespace catchment {

// The required contents of a table's file, from data.table.
struct TableSpec {
  SampleShape shape;
  TargetShape target;
  bool unit_targets = false;  // real targets must be in [0, 1]
  std::string features;       // data.table.features
  std::string labels;         // data.table.labels
  bool labels_first = false;  // the labels are in the first columns
  // That of SampleContent, for AddFeatures.
  std::vector<Normalization> normalization = {};
};

// The rows of one file.
struct TableRows {
  int64_t size = 0;
  // The values, size x the sample's shape, one row after another, in one of them; the other is null. Floats
  // are normalized (AddFeatures) unless they are mapped.
  std::shared_ptr<const uint8_t> bytes;
  std::shared_ptr<const float> floats;
  bool mapped = false;  // the values are those of a mapped file, which are read when they are used
  // The labels or the targets of all rows, according to TableSpec.target; the other one is empty.
  std::vector<int32_t> labels;
  std::vector<float> targets;
};

// Returns why the rows of an array of this shape, (rows, ...), are not samples of data.table.shape, with the
// remedy if their dimensions only have another order (Keras and TensorFlow keep an image's channels last);
// empty if they are. Rows have the dimensions of the shape, or one dimension with all of their values;
// dimensions of 1 may be left out or added. A shape of one dimension takes rows of any dimensions, because a
// vector's values may have any order.
std::string DescribeRowMismatch(absl::Span<const int64_t> array, absl::Span<const int64_t> shape);

// Returns the dimensions of data.table.shape.
std::vector<int64_t> DimensionsOf(const SampleShape& shape);

// Returns a pointer to the values that keeps the vector alive.
template <typename T>
std::shared_ptr<const T> Share(std::vector<T> values) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return {owner, owner->data()};
}

// Returns the name of a row for errors, "row 17 of digits.csv", with the format's way of counting rows.
using RowName = absl::FunctionRef<std::string(int64_t row)>;

// Returns "row 16, counted from 0, of x.npy".
std::string CountedRow(const std::string& path, int64_t row);

// Returns true if a row may have this number of label columns: one for a class number, or one for each class
// with a single 1; for real targets one for each target.
bool IsLabelWidth(const TargetShape& target, int64_t columns);
// Returns the allowed numbers in words: "1 (a label) or 10 (one-hot)".
std::string LabelWidths(const TargetShape& target);

// Adds the label columns of a row, whose number IsLabelWidth accepts.
// Errors: InvalidArgument that names the row, for NaN or infinity, a label that is not a class, a row
// that is not one-hot, or a target outside [0, 1] if targets must be within it.
absl::Status AddLabels(const TableSpec& spec, absl::Span<const double> columns, int64_t row, RowName name,
                       TableRows* rows);

// Adds the labels of all rows->size rows of the file `name`, which contains only labels; `values` are
// row-major.
// Errors: InvalidArgument for a number of columns that IsLabelWidth does not accept; those of AddLabels.
absl::Status AddAllLabels(const TableSpec& spec, absl::Span<const double> values, const std::string& name,
                          TableRows* rows);

// Returns the normalization of value i of a row; a row has `size` values. `normalization` is that of
// SampleContent, and not empty.
inline const Normalization& NormalizationOfValue(absl::Span<const Normalization> normalization,
                                                 const SampleShape& shape, int64_t i) {
  const auto count = static_cast<int64_t>(normalization.size());
  const bool by_channel = count == 1 || shape.kind == SampleKind::kImage;
  return normalization[by_channel ? i / (shape.size() / count) : i % count];
}

// Appends the features of `rows` rows to `out`: value(i), i from 0 row after row, normalized in double and
// rounded to float32. So whole numbers above 2^24, such as times in seconds, stay different from each other
// if data.table.mean is near them. Otherwise a warning of the process names the first value that rounding
// changes. `name` names value i: "row 3 of x.csv: column 2".
// Errors: InvalidArgument for a value that is not finite, with its name.
absl::Status AddFeatures(const TableSpec& spec, int64_t rows, absl::FunctionRef<double(int64_t i)> value,
                         absl::FunctionRef<std::string(int64_t i)> name, std::vector<float>* out);

// Returns "row 3, counted from 0, of x.npy: value 2 of 5", the name of value i of `row_size` in each row.
std::string CountedValue(const std::string& path, int64_t i, int64_t row_size);

// Checks that all values are finite. Errors: InvalidArgument that names the row and the value.
absl::Status CheckFinite(absl::Span<const float> values, int64_t row_size, RowName name);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_ROWS_H_
