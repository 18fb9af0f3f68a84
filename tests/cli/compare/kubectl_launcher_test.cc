// Tests runs on Kubernetes with a shell script in place of kubectl: the sequence of its calls. The file
// `applied` names the directory of the run in the cluster, and the directory `volume` is its volume.
// tests/deploy/kubernetes_test.sh renders the manifests with the real kubectl and trains with them.
#include "cli/compare/kubectl_launcher.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDone[] =
    R"(echo '{"phase": "DONE", "test_accuracy": 0.5, "wall_seconds": 3}' >volume/summary.json
echo '{"samples": 1000}' >volume/metrics.jsonl
echo weights >volume/model.safetensors)";

class KubectlLauncherTest : public ::testing::Test {
 protected:
  KubectlLauncherTest()
      : root_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    options_.job = "examples/mnist_mlp.textproto";
    options_.algorithms = {"sync", "downpour"};
    options_.workers = {2};
    options_.seeds = 1;
    options_.budget.samples = 1000;
    options_.out = root_ + "/out";
    options_.launcher = LauncherKind::kKubernetes;
    options_.kubernetes.image = "registry.example/catchment:0.1.0";
    Kubectl(kDone);
  }

  void Write(const std::string& name, const std::string& text) { std::ofstream(root_ + "/" + name) << text; }
  std::string Read(const std::string& name) const { return ReadTextFile(root_ + "/" + name).value_or(""); }

  // Makes kubectl, which does `apply` when a run, in the directory RUN, has been applied.
  void Kubectl(const std::string& apply) {
    Write("kubectl", absl::StrCat("#!/bin/sh\ncd ", root_, R"sh(
run=$(dirname "$3")
[ "$1" != cp ] || run=$(dirname "$run")
[ "$1" = get ] || [ "$1" = exec ] || [ "$1" = logs ] || echo "$1 ${2##*/} $(basename "$run")" >>calls
case "$1 $2" in
  "get configmap") [ ! -e applied ] || echo "run=$(cat applied)";;
  "get job") [ ! -e applied ] || echo "failed=$(cat job_failed 2>/dev/null)";;
  "get pods") echo "catchment-server-0 0/1 Pending";;
  "apply -k")
    RUN=$(sed -n 's/^  run: //p' "$3/run.yaml")
    echo "$RUN" >applied
    mkdir volume
)sh",
                                  apply, R"sh(
    ;;
  "exec catchment-server-0")
    for word; do command=$word; done
    [ -d volume ] || exit 1
    cat says 2>/dev/null
    sh -c "$(echo "$command" | sed "s:/out:$PWD/volume:g")";;
  "cp catchment-server-0:"*) cp -P "volume/${2##*/}" "$3";;
  "delete -k") rm -rf applied volume;;
  "logs catchment-server-0") echo "no such data";;
esac
)sh"));
    fs::permissions(root_ + "/kubectl", fs::perms::owner_all);
  }

  // Returns the calls that change something.
  std::vector<std::string> Calls() const { return absl::StrSplit(Read("calls"), '\n', absl::SkipEmpty()); }

  absl::Status Launch() {
    out_.str("");
    fs::remove(root_ + "/calls");
    signal_ = 0;
    const auto given = LoadJob(options_.job);
    if (!given.ok()) return given.status();
    const auto plan = MakePlan(options_, *given, {});
    if (!plan.ok()) return plan.status();
    const auto directory =
        CompareDirectory::Open(options_.out, options_.overwrite, CompareRecord(options_, *given));
    if (!directory.ok()) return directory.status();
    KubectlLauncher launcher(options_, root_ + "/kubectl", bounds_, &signals_);
    return RunMissing(plan->runs, *directory, &launcher, {&out_, &out_}, &signal_);
  }

  const std::string root_;
  CompareOptions options_;
  KubectlBounds bounds_ = {.poll = 0.02, .stall = 60};
  SignalWaiter signals_;
  std::ostringstream out_;
  int signal_ = 0;
};

TEST_F(KubectlLauncherTest, EveryRunIsAppliedCollectedAndDeleted) {
  const absl::Status status = Launch();
  EXPECT_TRUE(status.ok()) << status << out_.str();
  EXPECT_THAT(
      Calls(),
      ElementsAre("delete -k sync-2-workers-seed-1", "apply -k sync-2-workers-seed-1",
                  "cp model.safetensors sync-2-workers-seed-1", "cp metrics.jsonl sync-2-workers-seed-1",
                  "cp summary.json sync-2-workers-seed-1", "delete -k sync-2-workers-seed-1",
                  "delete -k downpour-2-workers-seed-1", "apply -k downpour-2-workers-seed-1",
                  "cp model.safetensors downpour-2-workers-seed-1",
                  "cp metrics.jsonl downpour-2-workers-seed-1", "cp summary.json downpour-2-workers-seed-1",
                  "delete -k downpour-2-workers-seed-1"));
  EXPECT_THAT(out_.str(), HasSubstr("[2/2] downpour, 2 workers, seed 1: 50.00 % in 3.0 s"));
  EXPECT_EQ(Read("out/runs/sync-2-workers-seed-1/model.safetensors"), "weights\n");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Calls(), ElementsAre());
  EXPECT_THAT(out_.str(), HasSubstr("2 of 2 runs are already done"));
}

TEST_F(KubectlLauncherTest, FilesThatAPodNamesAreNotWrittenUnlessTheyAreResults) {
  Write("victim", "mine");
  const std::string victim = root_ + "/victim";
  Write("says",
        absl::StrCat("result=../../../victim\nresult=", victim,
                     "\nresult=\nresult=.\nresult=..\nresult=job.textproto\nresult=summary.json/../x\n"));
  Kubectl(absl::StrCat(kDone, "\nfor name in victim job.textproto x; do echo theirs >volume/$name; done"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(), HasSubstr("[2/2] downpour, 2 workers, seed 1: 50.00 %"));
  EXPECT_EQ(Read("victim"), "mine");
  EXPECT_THAT(Read("calls"),
              AllOf(Not(HasSubstr("victim")), Not(HasSubstr("job.textproto")), Not(HasSubstr("cp x"))));
}

TEST_F(KubectlLauncherTest, AResultThatIsALinkIsNotKept) {
  bounds_.stall = 0.1;
  Write("secret", "mine");
  Kubectl(absl::StrCat(kDone, "\nln -sf ", root_, "/secret volume/model.safetensors"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(),
              HasSubstr("copying its results failed: /out/model.safetensors is not a regular file"));
  EXPECT_EQ(Read("out/runs/sync-2-workers-seed-1/model.safetensors"), "");
}

TEST_F(KubectlLauncherTest, ASignalLeavesTheRunAndTheSameCommandFindsIt) {
  Kubectl("");
  raise(SIGINT);
  EXPECT_TRUE(absl::IsAborted(Launch()));
  EXPECT_EQ(signal_, SIGINT);
  EXPECT_THAT(out_.str(), HasSubstr("The run continues in the cluster; `kubectl delete -k"));
  EXPECT_THAT(Calls(), ElementsAre("delete -k sync-2-workers-seed-1", "apply -k sync-2-workers-seed-1"));
  Write("volume/summary.json", R"({"phase": "DONE"})");
  Kubectl(kDone);
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("sync, 2 workers, seed 1: is already in the cluster"), HasSubstr("[2/2]")));
  EXPECT_THAT(Read("calls"), AllOf(Not(HasSubstr("apply -k sync")), HasSubstr("apply -k downpour")));
}

TEST_F(KubectlLauncherTest, WithOverwriteTheOldRunIsDeletedAndARunIsApplied) {
  Kubectl("");
  raise(SIGINT);
  EXPECT_TRUE(absl::IsAborted(Launch()));
  options_.overwrite = true;
  Kubectl(kDone);
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Calls()[0], "delete -k sync-2-workers-seed-1");
  EXPECT_THAT(Calls()[1], "apply -k sync-2-workers-seed-1");
}

TEST_F(KubectlLauncherTest, AnotherJobInTheNamespaceIsLeftAlone) {
  Write("applied", "/somewhere/else/runs/x\n");
  absl::Status status = Launch();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("kubectl delete -k /somewhere/else/runs/x/manifests"),
                    HasSubstr("choose another namespace")));
  Write("applied", "/x;touch y\n");
  EXPECT_THAT(std::string(Launch().message()), HasSubstr("`kubectl delete -k '/x;touch y/manifests'`"));
  Write("applied", "\n");
  status = Launch();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not of a comparison"));
  EXPECT_THAT(Calls(), ElementsAre());
}

TEST_F(KubectlLauncherTest, AFailureIsReportedAndTheOthersGoOn) {
  Kubectl(
      absl::StrCat("case $RUN in */sync*) echo '{\"phase\": \"FAILED\", "
                   "\"reason\": \"weights are NaN\"}' >volume/summary.json;; *) ",
                   kDone, ";; esac"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("[1/2] sync, 2 workers, seed 1: failed: weights are NaN"),
                                HasSubstr("[2/2] downpour, 2 workers, seed 1: 50.00 %")));
  Kubectl(kDone);
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Read("calls"), AllOf(HasSubstr("apply -k sync"), Not(HasSubstr("apply -k downpour"))));
}

TEST_F(KubectlLauncherTest, ARunWithoutProgressIsAFailureWithItsPods) {
  bounds_.stall = 0.1;
  Kubectl("rmdir volume");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("failed: no progress for 0.1 s (--stall_seconds)"),
                                HasSubstr("catchment-server-0 0/1 Pending"), HasSubstr("no such data")));
}

TEST_F(KubectlLauncherTest, WorkersThatHaveFailedAreAFailure) {
  Write("job_failed", "True");
  Kubectl("");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(), HasSubstr("failed: the Job catchment-worker has failed"));
}

TEST_F(KubectlLauncherTest, WhatKubectlCannotApplyEndsEverything) {
  Kubectl("echo 'error: no matches for Id StatefulSet' >&2; exit 1");
  const absl::Status status = Launch();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("kubectl apply"), HasSubstr("no matches for Id StatefulSet")));
}

TEST_F(KubectlLauncherTest, ManifestsHaveTheRunsNumbers) {
  options_.servers = 3;
  options_.threads = 4;
  EXPECT_TRUE(Launch().ok());
  const std::string manifests = "out/runs/sync-2-workers-seed-1/manifests/";
  EXPECT_THAT(Read(manifests + "run.yaml"),
              AllOf(HasSubstr("replicas: 3\n"), HasSubstr("completions: 2\n  parallelism: 2\n"),
                    HasSubstr("- --threads=4\n"), HasSubstr("image: registry.example/catchment:0.1.0\n")));
  EXPECT_EQ(Read(manifests + "job.textproto"), Read("out/runs/sync-2-workers-seed-1/job.textproto"));
  EXPECT_THAT(Read(manifests + "kustomization.yaml"), Not(HasSubstr("components")));
}

TEST_F(KubectlLauncherTest, AnOverlayChangesTheManifests) {
  fs::create_directories(root_ + "/overlay");
  options_.overlay = root_ + "/overlay";
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Read("out/runs/sync-2-workers-seed-1/manifests/kustomization.yaml"),
              HasSubstr("components:\n  - \"../../../../overlay\"\n"));
}

TEST_F(KubectlLauncherTest, WithoutKubectlItIsNamed) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", (root_ + "/nothing").c_str(), 1);
  const absl::Status status = KubectlLauncher::Create(options_, &signals_).status();
  setenv("PATH", path.c_str(), 1);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no kubectl in PATH"), HasSubstr("kubernetes-client")));
}

TEST(KubernetesRun, ValuesAreFoundBesideWarnings) {
  EXPECT_EQ(ValueOf("run", "W1123 memcache.go\nrun=/out/a\n"), "/out/a");
  EXPECT_EQ(ValueOf("run", "run=\n"), "");
  EXPECT_EQ(ValueOf("run", "Error: run=\n"), std::nullopt);
  const auto state = ParseState("tail: warning\nprogress=\"samples\":64\nphase=DONE\n");
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->progress, "\"samples\":64");
  EXPECT_EQ(state->phase, "DONE");
  EXPECT_FALSE(ParseState("").has_value());
}

}  // namespace
}  // namespace catchment
