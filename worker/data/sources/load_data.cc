#include "worker/data/sources/load_data.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/job/data_sources.h"
#include "worker/data/table/table.h"

namespace catchment {

absl::StatusOr<DataSets> LoadData(const v1::Job& job, const DataPaths& paths,
                                  absl::FunctionRef<bool()> is_stopped) {
  const v1::Data& data = job.data();
  switch (data.source_case()) {
    case v1::Data::kMnist:
      return LoadMnist(data.mnist(), paths);
    case v1::Data::kDrawnDigits:
      return DrawDigits(data.drawn_digits());
    case v1::Data::kSynthetic:
      return DataSets{Dataset::WithoutContent(data.synthetic().samples()), Dataset::WithoutContent(0)};
    case v1::Data::kExternal:
      return DataSets{Dataset::WithoutContent(static_cast<int64_t>(data.external().train_samples())),
                      Dataset::WithoutContent(static_cast<int64_t>(data.external().test_samples()))};
    case v1::Data::kCifar10:
      return LoadCifar10(data.cifar10(), paths);
    case v1::Data::kGeneratedEvents:
      return GenerateEvents(data.generated_events());
    case v1::Data::kGeneratedImages:
      return GenerateImages(data.generated_images());
    case v1::Data::kImageFolder:
      return LoadImageFolder(job, paths, is_stopped);
    case v1::Data::kTable:
      return LoadTable(job, paths);
    case v1::Data::SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("data: has no source; give one of ", ListDataSources()));
}

absl::StatusOr<std::vector<std::string>> ListFilesInUse(const v1::Data& data, bool test,
                                                        const DataPaths& paths) {
  if (data.has_image_folder()) return ListImageFolder(data.image_folder(), test, paths);
  if (data.has_table()) return ListMappedFiles(data.table(), test, paths);
  return std::vector<std::string>();
}

}  // namespace catchment
