#include "worker/data/table/table.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/data_sources.h"
#include "glog/logging.h"
#include "worker/data/bad_files.h"
#include "worker/data/table/content.h"
#include "worker/data/table/files.h"
#include "worker/data/table/formats.h"
#include "worker/data/table/rows.h"

namespace catchment {
namespace {

std::vector<Normalization> NormalizationOf(const v1::FileDataset& table) {
  std::vector<Normalization> all(std::max(table.mean_size(), table.deviation_size()));
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    // One number is for all.
    if (table.mean_size() > 0) all[i].mean = table.mean(table.mean_size() == 1 ? 0 : i);
    if (table.deviation_size() > 0) {
      all[i].standard_deviation = table.deviation(table.deviation_size() == 1 ? 0 : i);
    }
  }
  return all;
}

TableSpec SpecOf(const v1::Job& job) {
  const v1::FileDataset& table = job.data().table();
  return {.shape = ShapeOfTable(table),
          .target = TargetOfTable(table),
          .unit_targets = job.model().loss().kind() == v1::Loss::SIGMOID_CROSS_ENTROPY,
          .features = table.features(),
          .labels = table.labels(),
          .labels_first = table.label_columns() == v1::FileDataset::FIRST,
          .normalization = NormalizationOf(table)};
}

absl::StatusOr<TableRows> ReadFile(TableFormat format, const std::string& path, const TableSpec& spec) {
  switch (format) {
    case TableFormat::kCsv:
      return ReadCsv(path, spec);
    case TableFormat::kNpy:
      return ReadNpy(path, spec);
    case TableFormat::kHdf5:
      return ReadHdf5(path, spec);
    case TableFormat::kShard:
      return ReadShard(path, spec);
  }
  return absl::InternalError("a format that is none");
}

// Reads all files, and names all that cannot be used.
absl::StatusOr<std::vector<TableRows>> ReadFiles(const TableFiles& files, const TableSpec& spec,
                                                 const std::string& field, const DataPaths& paths) {
  std::vector<TableRows> all;
  BadFiles bad;
  for (size_t i = 0; i < files.paths.size(); ++i) {
    absl::StatusOr<TableRows> rows = ReadFile(files.format, StagedPath(paths, files.paths[i]), spec);
    if (rows.ok()) {
      all.push_back(*std::move(rows));
    } else {
      bad.Add(static_cast<int64_t>(i), rows.status());
    }
  }
  RETURN_IF_ERROR(bad.Status(field, static_cast<int64_t>(files.paths.size()), "files"));
  return all;
}

// Turns bytes into floats, normalized, where another file of the part has floats.
void MakeFloats(const TableSpec& spec, TableRows* rows) {
  if (rows->bytes == nullptr) return;
  std::vector<float> floats;
  floats.reserve(rows->size * spec.shape.size());
  const absl::Status status = AddFeatures(
      spec, rows->size, [&](int64_t i) { return static_cast<double>(rows->bytes.get()[i]); },
      [](int64_t) { return std::string(); }, &floats);
  CHECK(status.ok()) << status;
  rows->bytes = nullptr;
  rows->floats = Share(std::move(floats));
}

absl::StatusOr<Dataset> LoadPart(const TableFiles& files, const TableSpec& spec, const std::string& field,
                                 const DataPaths& paths) {
  ASSIGN_OR_RETURN(std::vector<TableRows> all, ReadFiles(files, spec, field, paths));
  const bool normalized = std::any_of(
      all.begin(), all.end(), [](const TableRows& rows) { return rows.floats != nullptr && !rows.mapped; });
  auto content = std::make_unique<TableContent>(
      spec.shape, normalized ? std::vector<Normalization>() : spec.normalization);
  std::vector<int32_t> labels;
  std::vector<float> targets;
  for (TableRows& rows : all) {
    if (normalized) MakeFloats(spec, &rows);
    content->Add(rows);
    labels.insert(labels.end(), rows.labels.begin(), rows.labels.end());
    targets.insert(targets.end(), rows.targets.begin(), rows.targets.end());
  }
  if (spec.target.is_real()) {
    return Dataset::WithTargets(spec.shape, spec.target.reals, std::move(content), std::move(targets));
  }
  return Dataset(spec.shape, spec.target.classes, std::move(content), std::move(labels));
}

absl::Status CheckTrainingRows(int64_t rows, const v1::Job& job) {
  if (rows < job.batch_size()) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size: is ", job.batch_size(),
                                                   ", and data.table.train has ", rows,
                                                   " rows; use at most as many"));
  }
  if (rows <= int64_t{UINT32_MAX}) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data.table.train: has ", rows, " rows; at most ", UINT32_MAX, " can be numbered"));
}

}  // namespace

absl::StatusOr<DataSets> LoadTable(const v1::Job& job, const DataPaths& paths) {
  const v1::FileDataset& table = job.data().table();
  const TableSpec spec = SpecOf(job);
  ASSIGN_OR_RETURN(const auto train_files,
                   FindTableFiles(table.train(), "data.table.train", table.directory(), paths));
  ASSIGN_OR_RETURN(const auto test_files,
                   FindTableFiles(table.test(), "data.table.test", table.directory(), paths));
  ASSIGN_OR_RETURN(Dataset train, LoadPart(train_files, spec, "data.table.train", paths));
  RETURN_IF_ERROR(CheckTrainingRows(train.size(), job));
  ASSIGN_OR_RETURN(Dataset test, LoadPart(test_files, spec, "data.table.test", paths));
  return DataSets{std::move(train), std::move(test)};
}

absl::StatusOr<std::vector<std::string>> ListMappedFiles(const v1::FileDataset& table, bool test,
                                                         const DataPaths& paths) {
  ASSIGN_OR_RETURN(TableFiles files,
                   FindTableFiles(test ? table.test() : table.train(),
                                  test ? "data.table.test" : "data.table.train", table.directory(), paths));
  if (files.format != TableFormat::kShard) return std::vector<std::string>();
  for (std::string& path : files.paths) {
    std::error_code error;
    path = std::filesystem::absolute(path, error).lexically_normal().string();
  }
  return std::move(files.paths);
}

}  // namespace catchment
