#include "worker/data/table/rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace catchment {
namespace {

absl::Status AddClass(int classes, double label, int64_t row, RowName name, TableRows* rows) {
  if (label >= 0 && label < classes && label == std::floor(label)) {
    rows->labels.push_back(static_cast<int32_t>(label));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name(row), " has label ", label, "; data.table.classes is ",
                                                 classes, ", and labels are whole numbers from 0 to ",
                                                 classes - 1));
}

absl::Status AddOneHot(absl::Span<const double> columns, int64_t row, RowName name, TableRows* rows) {
  const auto ones = std::count(columns.begin(), columns.end(), 1.0);
  const auto zeros = std::count(columns.begin(), columns.end(), 0.0);
  if (ones == 1 && ones + zeros == static_cast<int64_t>(columns.size())) {
    rows->labels.push_back(
        static_cast<int32_t>(std::find(columns.begin(), columns.end(), 1.0) - columns.begin()));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name(row), " has ", ones, " ones and ", zeros, " zeros in its ", columns.size(),
      " columns of labels; with a column for each class, labels are a single 1 and zeros elsewhere"));
}

absl::Status AddTargets(bool unit, absl::Span<const double> columns, int64_t row, RowName name,
                        TableRows* rows) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const float target = static_cast<float>(columns[i]);
    if (!std::isfinite(target)) {
      return absl::InvalidArgumentError(absl::StrCat(name(row), " has target ", columns[i], ", its ", i + 1,
                                                     ". of ", columns.size(),
                                                     "; targets are finite numbers, as float32"));
    }
    if (unit && !(target >= 0 && target <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat(name(row), " has target ", columns[i], ", its ", i + 1,
                                                     ". of ", columns.size(),
                                                     "; model.loss is SIGMOID_CROSS_ENTROPY, which needs "
                                                     "targets in [0, 1]; use MEAN_SQUARED_ERROR for others"));
    }
    rows->targets.push_back(target);
  }
  return absl::OkStatus();
}

absl::Status NotFinite(double value, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; features are finite numbers, as float32"));
}

// Returns true for a whole number that float32 does not hold.
bool IsRoundedWhole(double value) {
  constexpr double kExact = 1 << 24;  // all whole numbers up to this are floats
  return std::abs(value) > kExact && value == std::floor(value) && static_cast<float>(value) != value;
}

void WarnOfRounding(double value, float rounded, const std::string& name) {
  LOG_FIRST_N(WARNING, 1) << absl::StrFormat(
      "%s is %.17g, and the model gets %.17g: float32 rounds whole numbers above 2^24, so different values "
      "may become equal. Set data.table.mean and data.table.deviation, which are applied before the rounding",
      name, value, rounded);
}

int64_t Product(absl::Span<const int64_t> dimensions) {
  return std::accumulate(dimensions.begin(), dimensions.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> WithoutOnes(absl::Span<const int64_t> dimensions) {
  std::vector<int64_t> others;
  std::copy_if(dimensions.begin(), dimensions.end(), std::back_inserter(others),
               [](int64_t dimension) { return dimension != 1; });
  return others;
}

// Returns the axes of the array in the order of the shape, numpy.transpose's argument; empty if there is
// none.
std::vector<size_t> AxesFor(absl::Span<const int64_t> array, absl::Span<const int64_t> shape) {
  std::vector<size_t> axes = {0};
  std::vector<bool> taken(array.size());
  const auto take = [&](int64_t dimension) {
    for (size_t axis = 1; axis < array.size(); ++axis) {
      if (taken[axis] || array[axis] != dimension) continue;
      taken[axis] = true;
      axes.push_back(axis);
      return true;
    }
    return false;
  };
  const std::vector<int64_t> wanted = array.size() == shape.size() + 1
                                          ? std::vector<int64_t>(shape.begin(), shape.end())
                                          : WithoutOnes(shape);
  if (!std::all_of(wanted.begin(), wanted.end(), take)) return {};
  while (take(1)) {
  }
  return axes.size() == array.size() ? axes : std::vector<size_t>();
}

}  // namespace

std::vector<int64_t> DimensionsOf(const SampleShape& shape) {
  if (shape.is_vector()) return {shape.channels};
  if (shape.is_sequence()) return {shape.channels, shape.width};
  return {shape.channels, shape.height, shape.width};
}

std::string DescribeRowMismatch(absl::Span<const int64_t> array, absl::Span<const int64_t> shape) {
  const absl::Span<const int64_t> row = array.subspan(1);
  const std::string has =
      absl::StrCat("its shape, (", absl::StrJoin(array, ", "), array.size() == 1 ? ",)" : ")");
  const std::string wants = absl::StrCat("data.table.shape, ", absl::StrJoin(shape, "x"));
  if (Product(row) != Product(shape)) {
    return absl::StrCat(has, ", makes rows of ", Product(row), " values; ", wants, ", makes ",
                        Product(shape));
  }
  if (row.size() <= 1 || shape.size() == 1 || WithoutOnes(row) == WithoutOnes(shape)) return "";
  const std::vector<size_t> axes = AxesFor(array, shape);
  const char* const names =
      shape.size() == 3 ? ", which are channels, height and width" : ", which are steps and values";
  return absl::StrCat(has, ", has rows of different dimensions than ", wants, names,
                      axes.empty() ? "; save rows of these dimensions"
                                   : absl::StrCat(", in a different order; save numpy.transpose(a, (",
                                                  absl::StrJoin(axes, ", "), "))"));
}

std::string CountedValue(const std::string& path, int64_t i, int64_t row_size) {
  return absl::StrCat(CountedRow(path, i / row_size), ": value ", i % row_size + 1, " of ", row_size);
}

std::string CountedRow(const std::string& path, int64_t row) {
  return absl::StrCat("row ", row, ", counted from 0, of ", path);
}

bool IsLabelWidth(const TargetShape& target, int64_t columns) {
  return target.is_real() ? columns == target.reals : columns == 1 || columns == target.classes;
}

std::string LabelWidths(const TargetShape& target) {
  if (target.is_real()) return absl::StrCat(target.reals, " (data.table.targets)");
  return absl::StrCat("1 (a label) or ", target.classes, " (one-hot, data.table.classes)");
}

absl::Status AddLabels(const TableSpec& spec, absl::Span<const double> columns, int64_t row, RowName name,
                       TableRows* rows) {
  if (spec.target.is_real()) return AddTargets(spec.unit_targets, columns, row, name, rows);
  return columns.size() == 1 ? AddClass(spec.target.classes, columns[0], row, name, rows)
                             : AddOneHot(columns, row, name, rows);
}

absl::Status AddAllLabels(const TableSpec& spec, absl::Span<const double> values, const std::string& name,
                          TableRows* rows) {
  if (rows->size == 0) return absl::OkStatus();
  const auto width = static_cast<int64_t>(values.size()) / rows->size;
  if (!IsLabelWidth(spec.target, width)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", width, " values a row; labels are ", LabelWidths(spec.target)));
  }
  for (int64_t row = 0; row < rows->size; ++row) {
    RETURN_IF_ERROR(AddLabels(
        spec, values.subspan(row * width, width), row, [&](int64_t at) { return CountedRow(name, at); },
        rows));
  }
  return absl::OkStatus();
}

absl::Status AddFeatures(const TableSpec& spec, int64_t rows, absl::FunctionRef<double(int64_t i)> value,
                         absl::FunctionRef<std::string(int64_t i)> name, std::vector<float>* out) {
  const int64_t size = spec.shape.size();
  const bool normalizes = !spec.normalization.empty();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < size; ++i) {
      const double given = value(row * size + i);
      double normalized = given;
      if (normalizes) {
        const auto& [mean, deviation] = NormalizationOfValue(spec.normalization, spec.shape, i);
        normalized = (given - mean) / deviation;
      }
      out->push_back(static_cast<float>(normalized));
      if (!std::isfinite(out->back())) return NotFinite(given, name(row * size + i));
      if (IsRoundedWhole(normalized)) WarnOfRounding(given, out->back(), name(row * size + i));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(absl::Span<const float> values, int64_t row_size, RowName name) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return absl::OkStatus();
  const int64_t at = bad - values.begin();
  return NotFinite(*bad, absl::StrCat(name(at / row_size), ": value ", at % row_size + 1, " of ", row_size));
}

}  // namespace catchment
