#include "tests/fuzz/table.h"

#include <glog/logging.h>

#include <cmath>

namespace catchment {
namespace {

TableSpec SpecOf(uint8_t choice) {
  TableSpec spec;
  spec.shape = (choice & 1) != 0 ? SampleShape{1, 2, 2} : SampleShape{1, 1, 3};
  spec.target = (choice & 2) != 0 ? TargetShape::Real(2) : TargetShape(3);
  spec.unit_targets = (choice & 4) != 0;
  spec.labels_first = (choice & 8) != 0;
  spec.features = "features";
  spec.labels = "labels";
  return spec;
}

void Check(const TableSpec& spec, const TableRows& rows) {
  CHECK_NE(rows.bytes == nullptr, rows.floats == nullptr);
  const int64_t values = rows.size * spec.shape.size();
  double sum = 0;  // so that every value is read
  for (int64_t i = 0; i < values; ++i) {
    const float value =
        rows.bytes != nullptr ? static_cast<float>(rows.bytes.get()[i]) : rows.floats.get()[i];
    sum += value;
  }
  CHECK(!std::isnan(sum) || rows.floats != nullptr);
  if (spec.target.is_real()) {
    CHECK_EQ(static_cast<int64_t>(rows.targets.size()), rows.size * spec.target.reals);
    for (const float target : rows.targets) CHECK(std::isfinite(target));
  } else {
    CHECK_EQ(static_cast<int64_t>(rows.labels.size()), rows.size);
    for (const int32_t label : rows.labels) CHECK(label >= 0 && label < spec.target.classes) << label;
  }
}

}  // namespace

void TestTable(FuzzInput in, const std::string& ending, bool two_files,
               absl::StatusOr<TableRows> (*read)(const std::string& path, const TableSpec& spec)) {
  const TableSpec spec = SpecOf(in.Byte());
  const std::string path = WriteFuzzFile("features" + ending, two_files ? in.Text() : in.Rest());
  if (two_files) WriteFuzzFile("labels" + ending, in.Rest());
  const absl::StatusOr<TableRows> rows = read(path, spec);
  if (rows.ok()) Check(spec, *rows);
}

}  // namespace catchment
