#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/job/commands.h"
#include "cli/job/read_job.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/data_sources.h"
#include "common/program/command_line.h"
#include "worker/data/sources/load_data.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment pack JOB --out=DIR [flags]

Writes the training and test sets of a job as packed shards, DIR/train-00000.shard, ..., and prints the `data`
to put into the job instead of its own. Shards are mapped into memory: workers start at once regardless of the
size of the data, and all workers of a machine share one copy. Images of bytes remain bytes.

Examples:
  catchment pack examples/mnist_cnn.textproto --out=shards
  catchment pack job.textproto --set data.table.directory=/data/rows --out=/data/shards
)";

constexpr char kNotes[] = "\nExit code: 0: done; 1: failed; 2: wrong command line.\n";

struct Options {
  std::string job;  // file
  std::vector<std::string> set;
  std::string out;
  int rows_per_shard = 65536;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment pack", .usage = kUsage, .notes = kNotes};
  line.argument = {"JOB", "examples/mnist_cnn.textproto --out=shards", &o->job};
  line.flags.AddRequired("out", "DIR", &o->out, "Directory for the shards, without shards so far.");
  line.flags.AddInt("rows_per_shard", "N", 1, &o->rows_per_shard,
                    "Rows per file; the last file of each set may have fewer. Default 65536.");
  AddSetFlag(&o->set, &line.flags);
  return line;
}

// The job has one normalization for both sets. Rows of one may be stored as bytes, and those of the other as
// normalized floats.
PackedValues ValuesToPack(const DataSets& sets) {
  if (sets.test.size() == 0) return PackedValues::kStored;
  const auto train = sets.train.content()->normalization(), test = sets.test.content()->normalization();
  const auto same = [](const Normalization& a, const Normalization& b) {
    return a.mean == b.mean && a.standard_deviation == b.standard_deviation;
  };
  return std::equal(train.begin(), train.end(), test.begin(), test.end(), same) ? PackedValues::kStored
                                                                                : PackedValues::kAsRead;
}

absl::Status WriteSet(const std::string& prefix, const Dataset& data, int64_t rows_per_shard,
                      PackedValues packed) {
  int64_t shard = 0;
  for (int64_t begin = 0; begin < data.size(); begin += rows_per_shard, ++shard) {
    const int64_t end = std::min(data.size(), begin + rows_per_shard);
    const std::string path = absl::StrFormat("%s-%05d.shard", prefix, shard);
    RETURN_IF_ERROR(WriteShard(path, data, begin, end, packed));
  }
  return absl::OkStatus();
}

// Returns an error if there are shards: the job names its shards with wildcards, which would match them.
absl::Status CheckHasNoShards(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".shard") continue;
    return absl::AlreadyExistsError(absl::StrCat("--out=", directory, " has ",
                                                 entry.path().filename().string(),
                                                 " already; choose another directory, or delete its shards"));
  }
  return absl::OkStatus();
}

// Returns the number with the fewest digits that stands for the same value: 33.3285 for its float.
double Shortest(double value) {
  const auto rounded = static_cast<float>(value);
  for (int digits = 6; digits < 17; ++digits) {
    double number = 0;
    const bool read = absl::SimpleAtod(absl::StrFormat("%.*g", digits, value), &number);
    if (read && (rounded == value ? static_cast<float>(number) == rounded : number == value)) return number;
  }
  return value;
}

void SetShape(const SampleShape& shape, v1::FileDataset* table) {
  table->add_shape(shape.channels);
  if (shape.kind == SampleKind::kImage) table->add_shape(shape.height);
  if (!shape.is_vector()) table->add_shape(shape.width);
}

// Returns the data of a job that reads the shards.
v1::Data PackedData(const v1::Data& source, const DataSets& sets, const std::string& directory,
                    PackedValues packed) {
  v1::Data data;
  if (source.has_augmentation()) *data.mutable_augmentation() = source.augmentation();
  v1::FileDataset* table = data.mutable_table();
  table->add_train("train-*.shard");
  if (sets.test.size() > 0) table->add_test("test-*.shard");
  table->set_directory(directory);
  SetShape(sets.train.input_shape(), table);
  const TargetShape& target = sets.train.target();
  if (target.is_real()) {
    table->set_targets(target.reals);
  } else {
    table->set_classes(target.classes);
  }
  if (packed == PackedValues::kAsRead) return data;
  for (const Normalization& n : sets.train.content()->normalization()) {
    table->add_mean(Shortest(n.mean));
    table->add_deviation(Shortest(n.standard_deviation));
  }
  return data;
}

absl::StatusOr<int> Pack(const Options& options, const DataPaths& paths, std::ostream* out) {
  ASSIGN_OR_RETURN(const v1::Job job, LoadCompleteJob(options.job, options.set, 0));
  if (job.data().has_synthetic()) {
    return absl::InvalidArgumentError("data.synthetic has samples without content; there is nothing to pack");
  }
  if (job.data().has_external()) {
    return absl::InvalidArgumentError(
        "data.external has samples that a program loads; there is nothing to pack");
  }
  if (job.data().has_image_folder()) {
    return absl::InvalidArgumentError(
        "data.image_folder has images of many sizes, and shards have rows of one shape; "
        "a worker reads the images as they are");
  }
  RETURN_IF_ERROR(CreateDirectories(options.out));
  RETURN_IF_ERROR(CheckHasNoShards(options.out));
  ASSIGN_OR_RETURN(const DataSets sets, LoadData(job, paths));
  const std::string directory = std::filesystem::absolute(options.out).lexically_normal();
  const PackedValues packed = ValuesToPack(sets);
  RETURN_IF_ERROR(WriteSet(directory + "/train", sets.train, options.rows_per_shard, packed));
  RETURN_IF_ERROR(WriteSet(directory + "/test", sets.test, options.rows_per_shard, packed));
  std::string text;
  google::protobuf::TextFormat::PrintToString(PackedData(job.data(), sets, directory, packed), &text);
  *out << "# " << Plural(sets.train.size(), "row") << " for training, " << Count(sets.test.size())
       << " for tests. In the job, instead of its own data:\ndata {\n";
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    *out << "  " << line << '\n';
  *out << "}\n";
  return 0;
}

}  // namespace

int RunPack(const std::vector<std::string>& args, const DataPaths& paths, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return Pack(options, paths, streams.out); });
}

}  // namespace catchment
