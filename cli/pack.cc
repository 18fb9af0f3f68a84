#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/load.h"
#include "common/checkpoint/atomic_file.h"
#include "common/job/data_sources.h"
#include "common/text.h"
#include "worker/data/load_data.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment pack JOB --out=DIR [flags]

Writes the training and test sets of a job as packed shards, DIR/train-00000.shard, ..., and prints the `data` to put
into the job instead of its own. Shards are mapped into memory: workers start at once, whatever the size of the data,
and all workers of a machine share one copy. Images of bytes stay bytes.

Examples:
  catchment pack examples/mnist_cnn.textproto --out=shards
  catchment pack job.textproto --set data.table.directory=/data/rows --out=/data/shards --rows_per_shard=100000

Flags:
)";

struct Options {
  std::vector<std::string> set;
  std::string out;
  int rows_per_shard = 65536;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddString("out", "DIR", &o->out, "Where the shards go; required. It must hold no shards yet.");
  flags.AddInt("rows_per_shard", "N", 1, &o->rows_per_shard,
               "Rows in a file, the last one of each set may have fewer. Default 65536.");
  flags.AddList("set", "PATH=VALUE", &o->set, "Changes a field of the job. Any number of times.");
  return flags;
}

absl::Status WriteSet(const std::string& prefix, const Dataset& data, int64_t rows_per_shard) {
  int64_t shard = 0;
  for (int64_t begin = 0; begin < data.size(); begin += rows_per_shard, ++shard) {
    const int64_t end = std::min(data.size(), begin + rows_per_shard);
    const std::string path = absl::StrFormat("%s-%05d.shard", prefix, shard);
    if (absl::Status status = WriteShard(path, data, begin, end); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Names with wildcards, so that shards of an earlier run would take part.
absl::Status CheckHasNoShards(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".shard") continue;
    return absl::AlreadyExistsError(absl::StrCat("--out=", directory, " has ",
                                                 entry.path().filename().string(),
                                                 " already; name another folder, or delete its shards"));
  }
  return absl::OkStatus();
}

void SetShape(const SampleShape& shape, v1::Table* table) {
  table->add_shape(shape.channels);
  if (shape.kind == SampleKind::kImage) table->add_shape(shape.height);
  if (!shape.is_vector()) table->add_shape(shape.width);
}

// What reads the shards that were written.
v1::Data PackedData(const v1::Data& source, const DataSets& sets, const std::string& directory) {
  v1::Data data;
  if (source.has_augmentation()) *data.mutable_augmentation() = source.augmentation();
  v1::Table* table = data.mutable_table();
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
  for (const Normalization& n : sets.train.content()->normalization()) {
    table->add_mean(n.mean);
    table->add_deviation(n.standard_deviation);
  }
  return data;
}

absl::Status Pack(const std::string& job_file, const Options& options, const DataPaths& paths,
                  std::ostream* out) {
  const absl::StatusOr<v1::Job> job = LoadCompleteJob(job_file, options.set, 0);
  if (!job.ok()) return job.status();
  if (job->data().has_synthetic()) {
    return absl::InvalidArgumentError("data.synthetic has samples without content; there is nothing to pack");
  }
  if (job->data().has_external()) {
    return absl::InvalidArgumentError(
        "data.external has samples that a program loads; there is nothing to pack");
  }
  if (absl::Status status = CreateDirectories(options.out); !status.ok()) return status;
  if (absl::Status status = CheckHasNoShards(options.out); !status.ok()) return status;
  const absl::StatusOr<DataSets> sets = LoadData(*job, paths);
  if (!sets.ok()) return sets.status();
  const std::string directory = std::filesystem::absolute(options.out).lexically_normal();
  absl::Status status = WriteSet(directory + "/train", sets->train, options.rows_per_shard);
  if (status.ok()) status = WriteSet(directory + "/test", sets->test, options.rows_per_shard);
  if (!status.ok()) return status;
  std::string text;
  google::protobuf::TextFormat::PrintToString(PackedData(job->data(), *sets, directory), &text);
  *out << "# " << Plural(sets->train.size(), "row") << " for training, " << Count(sets->test.size())
       << " for tests. In the job, instead of its own data:\ndata {\n";
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    *out << "  " << line << '\n';
  *out << "}\n";
  return absl::OkStatus();
}

}  // namespace

int RunPack(const std::vector<std::string>& args, const DataPaths& paths, std::ostream* out,
            std::ostream* err) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  const absl::StatusOr<std::vector<std::string>> positional = flags.Parse(args);
  if (!positional.ok()) {
    *err << "catchment pack: " << positional.status().message() << '\n';
    return 2;
  }
  if (flags.help()) {
    *out << kUsage << flags.Describe()
         << "\nExit code: 0, 1 when it cannot be done, 2 for a wrong command line.\n";
    return 0;
  }
  if (positional->size() != 1 || options.out.empty()) {
    *err << "catchment pack: takes one job and --out, for example: catchment pack "
            "examples/mnist_cnn.textproto "
            "--out=shards\n";
    return 2;
  }
  const absl::Status status = Pack(positional->front(), options, paths, out);
  if (status.ok()) return 0;
  *err << "catchment pack: " << status.message() << '\n';
  return 1;
}

}  // namespace catchment
