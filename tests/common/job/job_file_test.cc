#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string WriteJob(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/job.textproto";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// The error of a job file with `text`, without the folder.
std::string FileError(const std::string& text) {
  const auto job = LoadJob(WriteJob(text));
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << text;
  const std::string message(job.status().message());
  const size_t name = message.find("job.textproto");
  return name == std::string::npos ? message : message.substr(name);
}

constexpr char kJob[] = R"(
name: "j"
model {
  layers { conv2d { filters: 8 kernel_size: 3 } }
  layers { dropout { rate: 0.5 } }
}
data { mnist { directory: "/data" } }
epochs: 2)";

v1::Job Overridden(const std::vector<std::string>& overrides) {
  const auto job = LoadJob(WriteJob(kJob), overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::Job());
}

std::string OverrideError(const std::string& text) {
  const auto job = LoadJob(WriteJob(kJob), {text});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << text;
  const std::string message(job.status().message());
  const std::string prefix = "override \"" + text + "\": ";
  EXPECT_THAT(message, StartsWith(prefix));
  return message.substr(std::min(message.size(), prefix.size()));
}

TEST(LoadJob, ReadsTheFile) {
  const v1::Job job = Overridden({});
  EXPECT_EQ(job.name(), "j");
  EXPECT_EQ(job.model().layers(0).conv2d().filters(), 8);
  EXPECT_EQ(job.epochs(), 2);
}

TEST(LoadJob, ByteOrderMarkIsSkippedAndUtf16Named) {
  const auto job = LoadJob(WriteJob("\xef\xbb\xbfname: \"marked\"\r\n"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "marked");
  for (const std::string& text : {std::string("\xff\xfen\0a\0", 6), std::string("\xfe\xff\0n\0a", 6),
                                  std::string("n\0a\0", 4), std::string("\0n\0a", 4)}) {
    EXPECT_EQ(FileError(text),
              "job.textproto: is encoded in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)");
  }
}

TEST(LoadJob, MissingFileIsNamed) {
  const auto job = LoadJob("/nowhere/mnist.textproto");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(job.status().message()),
              AllOf(HasSubstr("/nowhere/mnist.textproto"), HasSubstr("No such file")));
}

TEST(LoadJob, DirectoryInPlaceOfFileIsNamed) {
  const auto job = LoadJob(::testing::TempDir());
  EXPECT_FALSE(job.ok());
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("is not a regular file"));
}

TEST(LoadJob, NamedPipesDevicesAndSocketsAreRefusedAtOnce) {
  const std::string directory = ::testing::TempDir() + "/special";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  ASSERT_EQ(mkfifo((directory + "/pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(directory + "/pipe", directory + "/link");
  const std::filesystem::path before = std::filesystem::current_path();
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // A relative address, because one has at most 107 bytes.
  std::filesystem::current_path(directory);
  const sockaddr_un address = {AF_UNIX, "socket"};
  ASSERT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const std::string path : {"pipe", "link", "socket", "/dev/zero", "/dev/null", "/dev/full", "."}) {
    for (const FileNamedBy named_by : {FileNamedBy::kUser, FileNamedBy::kDirectory}) {
      const absl::Status status = LoadJob(path, {}, named_by).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
      EXPECT_EQ(status.message(), "the job file: " + path + ": is not a regular file");
    }
  }
  close(descriptor);
  std::filesystem::current_path(before);
}

TEST(LoadJob, APipeOfTheProcessIsReadIfTheUserNamesIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], kJob, sizeof(kJob) - 1), static_cast<ssize_t>(sizeof(kJob) - 1));
  close(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  EXPECT_EQ(LoadJob(path, {}, FileNamedBy::kDirectory).status().code(), absl::StatusCode::kInvalidArgument);
  const auto job = LoadJob(path);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "j");
  close(ends[0]);
}

TEST(LoadJob, UnknownFieldHasItsPlaceItsNearestNameAndTheKnownOnes) {
  EXPECT_EQ(FileError("batch_size: 64\noptimizer {\n  learing_rate: 0.1\n}\n"),
            "job.textproto:3:3: optimizer.learing_rate: no such field; did you mean learning_rate? (kind, "
            "learning_rate, momentum, nesterov, beta1, beta2, epsilon, schedule, rho, "
            "weight_decay, clip_value, clip_norm, trust_coefficient, worker_scaling, centered, groups)");
  EXPECT_THAT(FileError("epoch: 3"),
              StartsWith("job.textproto:1:1: epoch: no such field; did you mean epochs? (name"));
  EXPECT_THAT(FileError("frobnicate: 3"),
              StartsWith("job.textproto:1:1: frobnicate: no such field; known: name,"));
}

TEST(LoadJob, FormerNameOfAFieldIsAnsweredWithItsNewName) {
  EXPECT_EQ(FileError("optimizer { trust: 0.1 }"),
            "job.textproto:1:13: optimizer.trust: is called trust_coefficient now");
  EXPECT_EQ(FileError("optimizer { schedule { rise_share: 0.1 } }"),
            "job.textproto:1:24: optimizer.schedule.rise_share: is called pct_start now");
  EXPECT_EQ(FileError("algorithm { consistency { softsync: 1 } }"),
            "job.textproto:1:27: algorithm.consistency.softsync: is called n_softsync { n } now");
  EXPECT_EQ(OverrideError("algorithm.consistency.groups=1"),
            "algorithm.consistency.groups: is called asynchronous {} (for 0), synchronous {} (for 1) or "
            "grouped { groups } (for more) now");
  EXPECT_EQ(OverrideError("algorithm.emulated_delay=2"),
            "algorithm.emulated_delay: is called consistency { asynchronous { emulated_delay } } now");
  EXPECT_EQ(OverrideError("optimizer.schedule.rise_from=0.1"),
            "optimizer.schedule.rise_from: is called initial_lr_fraction now");
}

TEST(LoadJob, UnknownFieldInsideAListNamesTheItem) {
  EXPECT_THAT(
      FileError("model {\n layers { relu {} }\n layers { conv2d { filter: 3 } }\n}"),
      StartsWith(
          "job.textproto:3:20: model.layers[1].conv2d.filter: no such field; did you mean filters? ("));
  EXPECT_THAT(FileError("model { layers: [{ relu {} }, { conv2d { filters: 3 } }, { dens { units: 3 } }] }"),
              HasSubstr(": model.layers[2].dens: no such field; did you mean dense?"));
  EXPECT_EQ(
      FileError("model { layers { relu { slope: 1 } } }"),
      "job.textproto:1:25: model.layers[0].relu.slope: no such field; there are none here, leave it out");
}

TEST(LoadJob, WrongTypeNamesTheExpectedOne) {
  EXPECT_EQ(FileError("name: \"x\"  # a comment: {\nbatch_size: \"many\""),
            "job.textproto:2:13: batch_size: expected a whole number from 0 to 4294967295, got \"many\"");
  EXPECT_THAT(FileError("batch_size: -5"), EndsWith("expected a whole number from 0 to 4294967295, got -5"));
  EXPECT_THAT(FileError("batch_size: 5000000000"), EndsWith("from 0 to 4294967295, got 5000000000"));
  EXPECT_THAT(FileError("batch_size: 1.5"), EndsWith("from 0 to 4294967295, got 1.5"));
  EXPECT_EQ(FileError("optimizer { learning_rate: fast }"),
            "job.textproto:1:28: optimizer.learning_rate: expected a number, got fast");
  EXPECT_EQ(FileError("name: 5"), "job.textproto:1:7: name: expected a text in quotes, got 5");
  EXPECT_EQ(FileError("deterministic: maybe"),
            "job.textproto:1:16: deterministic: expected true or false, got maybe");
  EXPECT_EQ(FileError("optimizer: 5"),
            "job.textproto:1:12: optimizer: expected fields in braces, { ... }, got 5");
  EXPECT_EQ(FileError("optimizer 5"),
            "job.textproto:1:11: optimizer: expected fields in braces, { ... }, got 5");
  EXPECT_THAT(FileError("batch_size: "), EndsWith("got the end of the text"));
}

TEST(LoadJob, UnknownEnumValueListsTheAllowedOnes) {
  EXPECT_EQ(FileError("device: TPU\nepochs: 1"),
            "job.textproto:1:9: device: expected one of AUTO, CPU, CUDA, got TPU");
  EXPECT_EQ(FileError("optimizer { kind: RPROP }"),
            "job.textproto:1:19: optimizer.kind: expected one of SGD, ADAGRAD, ADAM, RMSPROP, "
            "ADADELTA, ADAMW, LARS, LAMB, LARC, got RPROP");
}

TEST(LoadJob, NamesOfEnumsMayHaveAnyCase) {
  const auto job =
      LoadJob(WriteJob("device: cuda\n\toptimizer {\tkind:\tAdam }  # Adam\ndeterministic: TRUE\n"
                       "name: 'Adam'"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->device(), v1::CUDA);
  EXPECT_EQ(job->optimizer().kind(), v1::Optimizer::ADAM);
  EXPECT_TRUE(job->deterministic());
  EXPECT_EQ(job->name(), "Adam");
}

TEST(LoadJob, FieldOfAnotherMessageIsFound) {
  EXPECT_THAT(
      FileError("learning_rate: 0.1"),
      StartsWith("job.textproto:1:1: learning_rate: no such field; did you mean optimizer.learning_rate? ("));
  EXPECT_THAT(FileError("layers { relu {} }"),
              HasSubstr("layers: no such field; did you mean model.layers?"));
  EXPECT_THAT(FileError("model { layers { linear { units: 10 } } }"),
              HasSubstr("model.layers[0].linear: no such field; did you mean dense?"));
  EXPECT_THAT(FileError("lr: 0.1"), HasSubstr("did you mean optimizer.learning_rate?"));
  EXPECT_THAT(OverrideError("learning_rate=0.1"), HasSubstr("did you mean optimizer.learning_rate?"));
}

TEST(LoadJob, MissingBraceIsNamedByTheOpenOne) {
  EXPECT_EQ(FileError("model {\n  layers { flatten {} }\n\ndata { mnist {} }\n"),
            "job.textproto:4:1: model.data: no such field; data belongs to the job itself, and the "
            "brace { of model, in line 1, is open: is a } missing?");
  EXPECT_EQ(FileError("model {\n  layers { flatten {} }\n"),
            "job.textproto:3:1: the text ends, and the brace { of model, in line 1, is open");
  EXPECT_THAT(
      FileError("name: 'x'\nmodel {\n  layers { conv2d { filters: 3\n  layers { relu {} }\n}\n"),
      HasSubstr("layers belongs to model, and the brace { of model.layers[0].conv2d, in line 3, is open"));
}

TEST(LoadJob, OtherFormatsAreNamed) {
  for (const char* json : {"{\"name\": \"mnist\"}", "\n  {\n  name: \"x\" }", "[1]"}) {
    EXPECT_THAT(FileError(json), StartsWith("job.textproto:1:1: this looks like JSON; ")) << json;
  }
  for (const char* yaml :
       {"name: mnist\nmodel:\n  layers:\n", "---\nname: mnist\n", "layers:  # a list\n  - relu"}) {
    EXPECT_THAT(FileError(yaml), HasSubstr(": this looks like YAML; a job is in protobuf's text format"))
        << yaml;
  }
  EXPECT_EQ(FileError("name: mnist\nmodel { }"),
            "job.textproto:1:7: name: expected a text in quotes, got mnist");
  EXPECT_EQ(FileError("epochs = 3"), "job.textproto:1:8: epochs: expected a colon, got =");
}

TEST(LoadJob, BudgetInPlainWords) {
  EXPECT_THAT(FileError("epochs: 0.5"),
              EndsWith("got 0.5; for a part of an epoch set samples instead: samples: 30000"));
  EXPECT_EQ(FileError("epochs: 1\nsamples: 2"),
            "job.textproto:2:8: samples: epochs is set already; set only one of epochs, samples, updates");
  EXPECT_THAT(OverrideError("epochs=0.5"), HasSubstr("samples: 30000"));
}

TEST(LoadJob, OtherMistakesKeepTheirPlace) {
  EXPECT_THAT(FileError("batch_size 64"),
              AllOf(StartsWith("job.textproto:1:12: batch_size: "), HasSubstr("64")));
  EXPECT_THAT(FileError("epochs: 1\nsamples: 2"),
              AllOf(StartsWith("job.textproto:2:8: samples: "), HasSubstr("epochs")));
  EXPECT_THAT(FileError("workers: 1\nworkers: 2"),
              AllOf(StartsWith("job.textproto:2:8: workers: "), HasSubstr("multiple")));
  EXPECT_THAT(FileError("optimizer { kind: SGD"), StartsWith("job.textproto:1:22: the text ends, "));
  EXPECT_THAT(FileError("workers: 1\n}"), StartsWith("job.textproto:2:1: "));
  EXPECT_THAT(FileError("{"), StartsWith("job.textproto:1:1: "));
  EXPECT_THAT(FileError("name: \"unfinished\nbatch_size: 3"), StartsWith("job.textproto:1:"));
}

TEST(ParseText, IndexesListsOfAnyKind) {
  v1::Job job;
  EXPECT_TRUE(ParseText("model { layers: [{ relu {} }, { flatten {} }], layers { relu {} } }, epochs: 3", "x",
                        "", &job)
                  .ok());
  EXPECT_EQ(job.model().layers_size(), 3);
}

TEST(Overrides, SetNumbersTextsEnumsAndBooleans) {
  const v1::Job job =
      Overridden({"batch_size=128", "optimizer.learning_rate=0.05", "algorithm.preset=downpour", "device=cpu",
                  "deterministic=TRUE", "optimizer.kind=Adam", "faults.heartbeat_timeout_seconds=2.5",
                  "seed=18446744073709551615"});
  EXPECT_EQ(job.batch_size(), 128);
  EXPECT_EQ(job.optimizer().learning_rate(), 0.05f);
  EXPECT_EQ(job.algorithm().preset(), "downpour");
  EXPECT_EQ(job.device(), v1::CPU);
  EXPECT_TRUE(job.deterministic());
  EXPECT_EQ(job.optimizer().kind(), v1::Optimizer::ADAM);
  EXPECT_EQ(job.faults().heartbeat_timeout_seconds(), 2.5);
  EXPECT_EQ(job.seed(), 18446744073709551615u);
}

TEST(Overrides, LaterOnesWinAndSpacesDoNotMatter) {
  EXPECT_EQ(Overridden({"batch_size=1", " batch_size = 2 "}).batch_size(), 2);
}

TEST(Overrides, MemberOfAOneofReplacesAnother) {
  EXPECT_EQ(Overridden({"updates=7"}).budget_case(), v1::Job::kUpdates);
  const v1::Job job = Overridden({"data.drawn_digits={}", "algorithm.contribution.gradient={push_period: 4}",
                                  "algorithm.contribution.elastic.moving_rate=0.3"});
  EXPECT_TRUE(job.data().has_drawn_digits());
  EXPECT_FALSE(job.data().has_mnist());
  EXPECT_TRUE(job.algorithm().contribution().has_elastic());
}

TEST(Overrides, MessageInBracesReplacesTheWhole) {
  const v1::Job job = Overridden({"data.drawn_digits.seed=9", "data.drawn_digits={train_samples:1000}"});
  EXPECT_EQ(job.data().drawn_digits().train_samples(), 1000);
  EXPECT_FALSE(job.data().drawn_digits().has_seed());
  EXPECT_TRUE(Overridden({"model.layers[0]={relu{}}"}).model().layers(0).has_relu());
}

TEST(Overrides, ListsByIndex) {
  EXPECT_EQ(Overridden({"model.layers[1].dropout.rate=0"}).model().layers(1).dropout().rate(), 0);
  EXPECT_EQ(OverrideError("model.layers[2].dropout.rate=0"),
            "model.layers[2]: no such item; there are 2, 0 to 1");
  EXPECT_EQ(OverrideError("model.layers.dropout.rate=0"),
            "model.layers: is a list; give an item: model.layers[0]");
  EXPECT_EQ(OverrideError("data[0].mnist={}"), "data[0]: is not a list; leave the [index] out");
  EXPECT_THAT(OverrideError("model.layers[x].dropout.rate=0"),
              StartsWith("model.layers[x]: name an item of a list by its index"));
}

TEST(Overrides, SetListsOfNumbersAndTexts) {
  const std::string table = "data={table { train: 'a.csv' train: 'b.csv' shape: 2 classes: 2 }}";
  const auto names = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {table};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const v1::FileDataset set = Overridden(all).data().table();
    return std::vector<std::string>(set.train().begin(), set.train().end());
  };
  EXPECT_THAT(names({"data.table.train=x, y.csv"}), ElementsAre("x, y.csv"));
  EXPECT_THAT(names({"data.table.train=[x.csv, \"y.csv\"]"}), ElementsAre("x.csv", "y.csv"));
  EXPECT_THAT(names({"data.table.train[1]=x.csv", "data.table.train[2]=y.csv"}),
              ElementsAre("a.csv", "x.csv", "y.csv"));
  EXPECT_THAT(names({"data.table.train="}), ElementsAre());
  EXPECT_THAT(names({"data.table.train=[]"}), ElementsAre());
  for (const char* shape : {"data.table.shape=[3, 32, 32]", "data.table.shape=3,32,32"}) {
    EXPECT_THAT(Overridden({table, shape}).data().table().shape(), ElementsAre(3, 32, 32)) << shape;
  }
  EXPECT_THAT(Overridden({table, "data.table.mean=0.5"}).data().table().mean(), ElementsAre(0.5));
  EXPECT_EQ(OverrideError("data.table.train[1]=x"),
            "data.table.train[1]: no such item; there are 0, and the next one is [0]");
  EXPECT_EQ(OverrideError("data.table.shape=[3, wide]"),
            "data.table.shape: expected a whole number from 0 to 4294967295, got wide");
  EXPECT_EQ(OverrideError("data.table.train.x=1"), "data.table.train: has no fields of its own");
}

TEST(Overrides, ItemOfAListKeepsItsKind) {
  EXPECT_EQ(OverrideError("model.layers[0].dropout.rate=0"),
            "model.layers[0].dropout: this item is conv2d, not dropout; to make it one, "
            "give it as a whole: model.layers[0].dropout={...}");
  EXPECT_TRUE(Overridden({"model.layers[0].dropout={rate:0.1}"}).model().layers(0).has_dropout());
}

TEST(Overrides, MistakesAreNamed) {
  EXPECT_EQ(
      OverrideError("optimizer.learing_rate=0.05"),
      "optimizer.learing_rate: no such field; did you mean learning_rate? (kind, learning_rate, momentum, "
      "nesterov, beta1, beta2, epsilon, schedule, rho, "
      "weight_decay, clip_value, clip_norm, trust_coefficient, worker_scaling, centered, groups)");
  EXPECT_EQ(OverrideError("batch_size=many"),
            "batch_size: expected a whole number from 0 to 4294967295, got many");
  EXPECT_EQ(OverrideError("batch_size="),
            "batch_size: expected a whole number from 0 to 4294967295, got nothing");
  EXPECT_EQ(OverrideError("device=tpu"), "device: expected one of AUTO, CPU, CUDA, got tpu");
  EXPECT_EQ(OverrideError("deterministic=maybe"), "deterministic: expected true or false, got maybe");
  EXPECT_EQ(OverrideError("optimizer=SGD"),
            "optimizer: expected fields in braces, { ... }, got SGD; to set one field, "
            "give its path: optimizer.kind=VALUE");
  EXPECT_EQ(OverrideError("batch_size.x=1"), "batch_size: has no fields of its own");
  EXPECT_THAT(OverrideError("batch_size"), StartsWith("is not PATH=VALUE"));
  EXPECT_THAT(OverrideError("=3"), StartsWith("is not PATH=VALUE"));
  EXPECT_THAT(
      OverrideError("data.drawn_digits={train_sample:3}"),
      StartsWith(
          "in braces:1:1: data.drawn_digits.train_sample: no such field; did you mean train_samples?"));
  EXPECT_THAT(OverrideError("data.drawn_digits={seed:1}{}"), StartsWith("in braces:1:7: "));
}

TEST(Overrides, AllMistakesAreReportedAtOnce) {
  v1::Job job;
  const absl::Status status = ApplyOverrides({"batch_sise=1", "workers=2", "workers=two"}, &job);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("batch_sise"), HasSubstr("\noverride \"workers=two\"")));
}

}  // namespace
}  // namespace catchment
