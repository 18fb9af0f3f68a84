// Rows that were read from a file of a table, and the checks that files of every kind have in common.
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
#include "common/model_shapes.h"

namespace catchment {

// What a file of a table must hold, from data.table.
struct TableSpec {
  SampleShape shape;
  TargetShape target;
  bool unit_targets = false;  // real targets are shares: in [0, 1]
  std::string features;       // data.table.features
  std::string labels;         // data.table.labels
  bool labels_first = false;  // of a row's columns
};

// One file's rows.
struct TableRows {
  int64_t size = 0;
  // size x the sample's shape, one row after another; one of them, the other is null.
  std::shared_ptr<const uint8_t> bytes;
  std::shared_ptr<const float> floats;
  // One of them, as TableSpec.target has it: a class each, or real numbers each.
  std::vector<int32_t> labels;
  std::vector<float> targets;
};

// Keeps a vector as long as its values are shared.
template <typename T>
std::shared_ptr<const T> Share(std::vector<T> values) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return {owner, owner->data()};
}

// Says which row: "row 17 of digits.csv", where rows are counted as their readers count them.
using RowName = absl::FunctionRef<std::string(int64_t row)>;

// "row 16, counted from 0, of x.npy".
std::string CountedRow(const std::string& path, int64_t row);

// Whether a row may have so many columns of labels: one class number, or as many as there are classes with a
// single 1; of real targets as many as these.
bool IsLabelWidth(const TargetShape& target, int64_t columns);
// What it may have, in words: "1 (a label) or 10 (one-hot)".
std::string LabelWidths(const TargetShape& target);

// Adds what stands in the label columns of a row: of a width that IsLabelWidth.
// Errors: InvalidArgument that names the row, for NaN or infinity, a label that is no class, a row that is
// not one-hot, or a target outside [0, 1] that has to be within.
absl::Status AddLabels(const TableSpec& spec, absl::Span<const double> columns, int64_t row, RowName name,
                       TableRows* rows);

// Adds those of all of rows->size rows, of a file with labels alone that is called `name`; `values` are
// row-major. Errors: InvalidArgument for a width that IsLabelWidth does not take; those of AddLabels.
absl::Status AddAllLabels(const TableSpec& spec, absl::Span<const double> values, const std::string& name,
                          TableRows* rows);

// Errors: InvalidArgument that names the row and the value, for NaN or infinity.
absl::Status CheckFinite(absl::Span<const float> values, int64_t row_size, RowName name);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_ROWS_H_
