#include <fstream>

#include "absl/strings/match.h"
#include "cli/compare/compare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CompareOptions> Parse(const std::vector<std::string>& args) {
  CompareOptions options;
  CommandLine line = CompareCommandLine(&options);
  if (absl::Status status = line.Parse(args); !status.ok()) return status;
  return options;
}

CompareOptions Parsed(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"job.textproto", "--algorithms=sync,downpour", "--out=out"};
  args.insert(args.end(), more.begin(), more.end());
  const auto options = Parse(args);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(CompareOptions());
}

std::string Error(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"job.textproto", "--out=out"};
  args.insert(args.end(), more.begin(), more.end());
  const bool has_algorithms = !more.empty() && absl::StartsWith(more[0], "--algorithms");
  if (!has_algorithms) args.push_back("--algorithms=sync,downpour");
  return std::string(Parse(args).status().message());
}

TEST(CompareOptions, Defaults) {
  const CompareOptions options = Parsed({});
  EXPECT_THAT(options.algorithms, ElementsAre("sync", "downpour"));
  EXPECT_THAT(options.workers, ElementsAre(1, 2, 4));
  EXPECT_EQ(options.seeds, 3);
  EXPECT_EQ(options.threads, 1);
  EXPECT_EQ(ToString(options.budget), "the job's");
  EXPECT_EQ(options.search, SearchKind::kHalving);
  EXPECT_EQ(Parse({"job.textproto", "--algorithms=sync"})->out, "out-compare");
}

TEST(CompareOptions, ListsBudgetsAndStragglers) {
  const CompareOptions options = Parsed(
      {"--workers=8,2", "--budget=samples:120000", "--straggler=1:4x", "--straggler=3:1.5", "--target=0.97"});
  EXPECT_THAT(options.workers, ElementsAre(2, 8)) << "ascending";
  EXPECT_EQ(options.budget.samples, 120000);
  ASSERT_EQ(options.stragglers.size(), 2u);
  EXPECT_EQ(ToString(options.stragglers[0]), "1:4x");
  EXPECT_EQ(options.stragglers[1].worker(), 3u);
  EXPECT_EQ(options.stragglers[1].slowdown_factor(), 1.5);
  EXPECT_EQ(options.target, 0.97);
  EXPECT_EQ(Parsed({"--budget=seconds:2.5"}).budget.seconds, 2.5);
}

TEST(CompareOptions, RefusesToSetWhatTheComparisonDecides) {
  EXPECT_THAT(Error({"--set=workers=8"}), AllOf(HasSubstr("--set=workers=8"), HasSubstr("--workers=8")));
  EXPECT_THAT(Error({"--set=checkpoint.every_updates=9"}), HasSubstr("runs write no checkpoints"));
  EXPECT_THAT(Error({"--set=checkpoint={every_updates: 9}"}), HasSubstr("runs write no checkpoints"));
  EXPECT_THAT(Error({"--set=algorithm.preset=dana"}), HasSubstr("those of --algorithms"));
  EXPECT_EQ(Parsed({"--set=algorithm.preset=sync"}).set.size(), 1u) << "one of them";
}

TEST(CompareOptions, SearchesUnlessToldOtherwise) {
  EXPECT_EQ(Parsed({"--search=none"}).search, SearchKind::kNone);
  EXPECT_EQ(Parsed({"--search=halving"}).search, SearchKind::kHalving);
  EXPECT_THAT(Error({"--search=grid"}), HasSubstr("--search=grid: takes halving or none"));
}

TEST(CompareOptions, RunsOnSlurm) {
  EXPECT_EQ(Parsed({}).launcher, LauncherKind::kLocal);
  const CompareOptions options =
      Parsed({"--launcher=slurm", "--nodes=4", "--gpus-per-node=2", "--partition=main", "--workers=2,8"});
  EXPECT_EQ(options.launcher, LauncherKind::kSlurm);
  EXPECT_EQ(options.slurm.nodes, 4);
  EXPECT_EQ(options.slurm.gpus_per_node, 2);
  EXPECT_EQ(options.slurm.partition, "main");
}

TEST(CompareOptions, WhatOneLauncherDoesNotSupportIsRefused) {
  EXPECT_THAT(Error({"--launcher=pbs"}), HasSubstr("--launcher=pbs: takes local, slurm or kubectl"));
  EXPECT_THAT(Error({"--nodes=2"}), HasSubstr("--nodes: is for runs on Slurm; add --launcher=slurm"));
  EXPECT_THAT(Error({"--gpus-per-node=2"}), HasSubstr("--gpus_per_node: is for runs on Slurm"));
  EXPECT_THAT(Error({"--partition=main"}), HasSubstr("--partition: is for runs on Slurm"));
  EXPECT_THAT(Error({"--launcher=slurm", "--budget=seconds:5"}), HasSubstr("give --budget=samples:N"));
  EXPECT_THAT(Error({"--launcher=slurm", "--device=cpu"}), HasSubstr("--set device=CPU"));
  EXPECT_THAT(Error({"--launcher=slurm", "--stall_seconds=5"}), HasSubstr("SBATCH_TIMELIMIT"));
  EXPECT_THAT(Error({"--launcher=slurm", "--gpus_per_node=2", "--workers=3"}),
              HasSubstr("3 workers cannot be divided equally between at most 1 node with 2 GPUs each"));
}

TEST(CompareOptions, RunsOnKubernetes) {
  const std::string overlay = ::testing::TempDir();
  std::ofstream(overlay + "/kustomization.yaml") << "kind: Component\n";
  const std::string kubectl = "--launcher=kubectl", image = "--image=registry.example/catchment:0.1.0";
  const CompareOptions options =
      Parsed({kubectl, image, "--overlay=" + overlay, "--one_node", "--stall_seconds=60"});
  EXPECT_EQ(options.launcher, LauncherKind::kKubernetes);
  EXPECT_EQ(options.kubernetes.image, "registry.example/catchment:0.1.0");
  EXPECT_TRUE(options.kubernetes.one_node);
  EXPECT_EQ(options.overlay, overlay);
  EXPECT_THAT(Error({kubectl}), HasSubstr("--image=IMAGE is required"));
  EXPECT_THAT(Error({kubectl, image, "--data_claim=Data"}), HasSubstr("--data_claim=Data: "));
  for (const std::string& flag : {image, "--overlay=" + overlay, std::string("--one_node")}) {
    EXPECT_THAT(Error({flag}), HasSubstr("is for runs on Kubernetes; add --launcher=kubectl"));
  }
  EXPECT_THAT(Error({kubectl, image, "--overlay=/nothing"}), HasSubstr("no /nothing/kustomization.yaml"));
  EXPECT_THAT(Error({kubectl, image, "--nodes=2"}), HasSubstr("--nodes: is for runs on Slurm"));
  EXPECT_THAT(Error({kubectl, image, "--budget=seconds:5"}),
              HasSubstr("with --launcher=kubectl a run ends after samples"));
  EXPECT_THAT(Error({kubectl, image, "--program=python train.py"}),
              HasSubstr("--program: is not supported with --launcher=kubectl"));
}

TEST(CompareOptions, TakesADeviceInEitherCase) {
  EXPECT_TRUE(Parse({"job", "--algorithms=sync", "--out=out", "--device=CPU"}).ok());
}

TEST(CompareOptions, ErrorsNameTheFlagAndHowToCorrectIt) {
  EXPECT_THAT(Error({"--algorithms=sync,downpuor"}),
              AllOf(HasSubstr("no preset"), HasSubstr("did you mean downpour?")));
  EXPECT_THAT(Error({"--algorithms=sync,async"}), HasSubstr("did you mean downpour?"));
  EXPECT_THAT(Error({"--algorithms=sync,sync"}), HasSubstr("sync is listed twice"));
  EXPECT_THAT(Error({"--workers=1,0"}), HasSubstr("--workers=1,0: takes different whole numbers from 1"));
  EXPECT_THAT(Error({"--budget=epochs:3"}), HasSubstr("takes samples:N or seconds:N"));
  EXPECT_THAT(Error({"--budget=samples:-3"}), HasSubstr("takes a whole number of samples above 0"));
  EXPECT_THAT(Error({"--straggler=1"}), HasSubstr("takes WORKER:TIMES"));
  EXPECT_THAT(Error({"--straggler=4:2x"}), HasSubstr("no run has a worker 4: workers are numbered from 0"));
  EXPECT_THAT(Error({"--target=97"}), HasSubstr("above 0 and below 1"));
  EXPECT_THAT(Error({"--out="}), HasSubstr("--out=: names no directory"));
  EXPECT_THAT(std::string(Parse({"job", "--out=out"}).status().message()),
              HasSubstr("--algorithms=A,B,... is required"));
}

}  // namespace
}  // namespace catchment
