#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxOutputs = 1'000'000;
constexpr int64_t kMaxValues = int64_t{1} << 31;

bool HasShape(const v1::FileDataset& table) {
  int64_t left = kMaxValues;
  for (uint32_t dimension : table.shape()) left /= std::max(1u, dimension);
  return table.shape_size() >= 1 && table.shape_size() <= 3 && left > 0 &&
         std::count(table.shape().begin(), table.shape().end(), 0u) == 0;
}

void CheckTarget(const v1::FileDataset& table, Problems* problems) {
  if (table.has_targets())
    return problems->Within<uint32_t>(1, kMaxOutputs, "data.table.targets", table.targets());
  if (table.has_classes())
    return problems->Within<uint32_t>(2, kMaxOutputs, "data.table.classes", table.classes());
  problems->Add("data.table", Reason::kMissing,
                "has neither classes nor targets; set classes to the number of classes, or targets to the "
                "number of real numbers to predict for a sample");
}

// `values` are data.table.mean or deviation.
void CheckCount(const v1::FileDataset& table, const std::string& path,
                const google::protobuf::RepeatedField<double>& values, Problems* problems) {
  const SampleShape shape = ShapeOfTable(table);
  const int64_t groups = shape.kind == SampleKind::kImage ? shape.channels
                         : shape.is_sequence()            ? shape.width
                                                          : shape.channels;
  if (values.size() <= 1 || values.size() == groups) return;
  problems->Add(path, Reason::kRange,
                absl::StrCat("has ", values.size(), " numbers; must have 1, or ", groups, ", one for each ",
                             shape.kind == SampleKind::kImage ? "channel"
                             : shape.is_sequence()            ? "value of a step"
                                                              : "value",
                             " of data.table.shape, ", ToString(shape)));
}

void CheckNormalization(const v1::FileDataset& table, Problems* problems) {
  CheckCount(table, "data.table.mean", table.mean(), problems);
  CheckCount(table, "data.table.deviation", table.deviation(), problems);
  for (double mean : table.mean()) {
    problems->Require(std::isfinite(mean), "data.table.mean", mean, "must be a number");
  }
  for (double deviation : table.deviation()) problems->Positive("data.table.deviation", deviation);
}

}  // namespace

bool SaysItsShape(const v1::FileDataset& table) {
  return HasShape(table) && (table.has_targets() ? table.targets() : table.classes()) >= 1;
}

void CheckTable(const v1::FileDataset& table, Problems* problems) {
  if (table.train().empty())
    problems->Add("data.table.train", Reason::kMissing, "is empty; name at least one file");
  for (const auto* names : {&table.train(), &table.test()}) {
    if (std::count(names->begin(), names->end(), "") > 0) {
      problems->Add(names == &table.train() ? "data.table.train" : "data.table.test", Reason::kMissing,
                    "has an empty name");
    }
  }
  CheckTarget(table, problems);
  if (HasShape(table)) {
    CheckNormalization(table, problems);
  } else {
    problems->Add(
        "data.table.shape", Reason::kRange,
        absl::StrCat(
            "has ", table.shape_size(),
            " numbers; must be of 1 (values), 2 (steps, values) or 3 (channels, height, width), each "
            "at least 1, and a sample at most ",
            kMaxValues, " values"));
  }
  if (table.features().empty())
    problems->Add("data.table.features", Reason::kMissing, "is empty; leave it out for \"features\"");
  if (table.labels().empty())
    problems->Add("data.table.labels", Reason::kMissing, "is empty; leave it out for \"labels\"");
  if (table.features() == table.labels()) {
    problems->Add("data.table.labels", Reason::kConflict,
                  absl::StrCat("is \"", table.labels(), "\", and so is data.table.features"));
  }
  problems->Require(v1::FileDataset::LabelColumns_IsValid(table.label_columns()), "data.table.label_columns",
                    static_cast<int>(table.label_columns()), "must be FIRST or LAST");
}

}  // namespace catchment
