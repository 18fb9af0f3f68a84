// The values of the rows of a table's files, without a copy.
#ifndef CATCHMENT_WORKER_DATA_TABLE_CONTENT_H_
#define CATCHMENT_WORKER_DATA_TABLE_CONTENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/job/model_shapes.h"
#include "worker/data/sample_content.h"
#include "worker/data/table/rows.h"

namespace catchment {

class TableContent final : public SampleContent {
 public:
  // `normalization` is that of SampleContent.
  TableContent(const SampleShape& shape, std::vector<Normalization> normalization);

  // Appends a file's rows.
  void Add(const TableRows& rows);
  int64_t size() const { return files_.empty() ? 0 : files_.back().begin + files_.back().size; }

  absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t> crop_seed, float* out) const override;
  const uint8_t* bytes(int64_t index) const override;
  const float* floats(int64_t index) const override;
  std::vector<Normalization> normalization() const override { return normalization_; }

 private:
  struct File {
    int64_t begin = 0;  // the index of its first row
    int64_t size = 0;
    std::shared_ptr<const uint8_t> bytes;
    std::shared_ptr<const float> floats;
    bool mapped = false;  // as in TableRows
  };

  const File& FileOf(int64_t index) const;
  void Normalize(float* values) const;

  const SampleShape shape_;
  const std::vector<Normalization> normalization_;
  std::vector<File> files_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_CONTENT_H_
