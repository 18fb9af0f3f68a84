// Tests runs as jobs of Slurm with shell scripts in place of sbatch, squeue and scancel. The file `queue` is
// what squeue prints; a test's `Batch` is what becomes of a job when it is submitted.
#include "cli/compare/slurm_launcher.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/compare/comparison_runs.h"
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

constexpr char kDone[] = "finish; state COMPLETED";

class SlurmLauncherTest : public ::testing::Test {
 protected:
  SlurmLauncherTest()
      : root_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    options_.job = "examples/mnist_mlp.textproto";
    options_.algorithms = {"sync", "downpour"};
    options_.workers = {2};
    options_.seeds = 1;
    options_.budget.samples = 1000;
    options_.out = root_ + "/out";
    options_.launcher = LauncherKind::kSlurm;
    options_.search = SearchKind::kNone;
    bounds_ = {.poll = 0.02, .silence = 0, .visible = 0.1};
    Write("queue", "");
    Program("squeue", "cat queue");
    Program("scancel", "echo \"$@\" >>cancelled");
    Batch(kDone);
  }

  void Write(const std::string& name, const std::string& text) { std::ofstream(root_ + "/" + name) << text; }
  std::string Read(const std::string& name) const { return ReadTextFile(root_ + "/" + name).value_or(""); }

  void Program(const std::string& name, const std::string& body) {
    Write(name, absl::StrCat("#!/bin/sh\ncd ", root_, "\n", body, "\n"));
    fs::permissions(root_ + "/" + name, fs::perms::owner_all);
  }

  // Sets what sbatch does with job JOB, named NAME, in the directory DIR: `finish` writes the result, and
  // `state` puts the job into the queue.
  void Batch(const std::string& body) {
    Program("sbatch", absl::StrCat(R"(
for word; do
  case $word in --out=*) DIR=${word#--out=};; --job-name=*) NAME=${word#--job-name=};; esac
done
finish() { echo '{"phase": "DONE", "test_accuracy": 0.5, "wall_seconds": 3}' >"$DIR/summary.json"; }
state() { sed -i "/^$JOB /d" queue; echo "$JOB $1" >>queue; }
echo "$NAME" >>submitted
JOB=$(wc -l <submitted)
)",
                                   body, "\necho $JOB"));
  }

  // Returns the names of the runs that were submitted by the last Launch.
  std::vector<std::string> Submitted() const {
    return absl::StrSplit(Read("submitted"), '\n', absl::SkipEmpty());
  }

  absl::Status Launch() {
    out_.str("");
    signal_ = 0;
    const auto given = LoadJob(options_.job);
    if (!given.ok()) return given.status();
    const auto directory =
        CompareDirectory::Open(options_.out, options_.overwrite, CompareRecord(options_, *given));
    if (!directory.ok()) return directory.status();
    const std::string bin = root_ + "/";
    SlurmLauncher launcher(options_, {bin + "sbatch", bin + "squeue", bin + "scancel", "catchment.sbatch"},
                           bounds_, &signals_);
    const Streams streams = {&out_, &out_};
    ComparisonRuns runs(options_, *given, *directory, &launcher, streams);
    const absl::Status status = runs.Run();
    signal_ = runs.signal();
    return status;
  }

  const std::string root_;
  CompareOptions options_;
  SlurmBounds bounds_;
  SignalWaiter signals_;
  std::ostringstream out_;
  int signal_ = 0;
};

TEST_F(SlurmLauncherTest, EveryRunIsAJobAndDoneRunsAreNotSubmittedAgain) {
  Batch(absl::StrCat("mkdir $DIR/checkpoints; ", kDone));
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Submitted(), ElementsAre("sync-2-workers-seed-1", "downpour-2-workers-seed-1"));
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("sync, 2 workers, seed 1: submitted as Slurm job 1"),
                                HasSubstr("[2/2] downpour, 2 workers, seed 1: 50.00 % in 3.0 s")));
  EXPECT_FALSE(fs::exists(options_.out + "/runs/sync-2-workers-seed-1/checkpoints"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_EQ(Submitted().size(), 2u);
  EXPECT_THAT(out_.str(), HasSubstr("2 of 2 runs are already done"));
}

TEST_F(SlurmLauncherTest, ASignalLeavesTheJobsAndTheSameCommandFindsThem) {
  Batch("state RUNNING");
  raise(SIGINT);
  EXPECT_TRUE(absl::IsAborted(Launch()));
  EXPECT_EQ(signal_, SIGINT);
  EXPECT_THAT(out_.str(), HasSubstr("Slurm jobs 1 2 continue; `scancel 1 2` cancels them"));
  EXPECT_EQ(Read("cancelled"), "");
  // The jobs end at the second request for the queue.
  Program("squeue", R"(cat queue
for run in out/runs/*; do echo '{"phase": "DONE"}' >$run/summary.json; done
sed -i s/RUNNING/COMPLETED/ queue)");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("sync, 2 workers, seed 1: is Slurm job 1 already"), HasSubstr("[2/2]")));
  EXPECT_EQ(Submitted().size(), 2u);
}

TEST_F(SlurmLauncherTest, ALostJobIsSubmittedAgain) {
  Batch(absl::StrCat("if [ $JOB = 1 ]; then state NODE_FAIL; else ", kDone, "; fi"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Submitted(),
              ElementsAre("sync-2-workers-seed-1", "downpour-2-workers-seed-1", "sync-2-workers-seed-1"));
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("sync, 2 workers, seed 1: Slurm job 1 was lost (NODE_FAIL)"),
                                HasSubstr("[2/2] sync, 2 workers, seed 1: 50.00 %")));
}

TEST_F(SlurmLauncherTest, AJobThatIsAlwaysLostIsAFailure) {
  Batch(absl::StrCat("case $NAME in sync*) state NODE_FAIL;; *) ", kDone, ";; esac"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_EQ(Submitted().size(), 6u) << "five of sync, one of downpour";
  EXPECT_THAT(out_.str(), HasSubstr("[2/2] sync, 2 workers, seed 1: failed: Slurm job 6 ended as NODE_FAIL"));
}

TEST_F(SlurmLauncherTest, AFailureIsReportedWithTheEndOfItsLogAndTheOthersGoOn) {
  Batch(absl::StrCat("case $NAME in sync*) echo no such data >$DIR/logs/slurm.log; state FAILED;; *) ", kDone,
                     ";; esac"));
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("failed: Slurm job 1 ended as FAILED"), HasSubstr("no such data"),
                                HasSubstr("[2/2]")));
  Batch(kDone);
  EXPECT_TRUE(Launch().ok());
  EXPECT_EQ(Submitted().size(), 3u) << "a run that failed is submitted again by the next command";
}

TEST_F(SlurmLauncherTest, ATimeLimitIsNamed) {
  Batch("echo ended >$DIR/logs/slurm.log; state TIMEOUT");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(), HasSubstr("before its budget was spent; SBATCH_TIMELIMIT"));
}

TEST_F(SlurmLauncherTest, ADirectoryThatNodesDoNotSeeEndsEverything) {
  Batch("if [ $JOB = 1 ]; then state FAILED; else state PENDING; fi");
  const absl::Status status = Launch();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("choose an --out on a file system that this machine and all nodes share"),
                    HasSubstr("/out/runs/sync-2-workers-seed-1/logs/slurm.log")));
  EXPECT_EQ(Read("cancelled"), "1 2\n");
}

TEST_F(SlurmLauncherTest, ARefusedRunIsSubmittedAgainWhenAnotherHasEnded) {
  // One job at a time.
  Batch(absl::StrCat(R"(if [ -s queue ] && grep -q RUNNING queue; then
  sed -i '$d' submitted
  echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
  exit 1
fi
finish; state RUNNING)"));
  Program("squeue", "sed -i s/RUNNING/COMPLETED/ queue; cat queue");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(Submitted(), ElementsAre("sync-2-workers-seed-1", "downpour-2-workers-seed-1"));
}

TEST_F(SlurmLauncherTest, ARefusalWithoutOtherJobsIsTheFailure) {
  Batch("echo 'sbatch: error: invalid partition specified: none' >&2; exit 1");
  EXPECT_TRUE(Launch().ok());
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("[1/2] sync"), HasSubstr("[2/2] downpour"),
                    HasSubstr("sbatch failed (exit code 1)"), HasSubstr("invalid partition specified")));
}

TEST_F(SlurmLauncherTest, NoQueueIsAnError) {
  Program("squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1");
  const absl::Status status = Launch();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Unable to contact slurm controller"));
  EXPECT_THAT(Submitted(), ElementsAre());
}

TEST_F(SlurmLauncherTest, ADirectoryWithActiveJobsIsNotDeleted) {
  Batch("state RUNNING");
  raise(SIGINT);
  EXPECT_TRUE(absl::IsAborted(Launch()));
  const std::string path = std::getenv("PATH");
  setenv("PATH", (root_ + ":" + path).c_str(), 1);
  const absl::Status status = CheckNoJobs(options_.out);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("scancel "), HasSubstr("choose another --out")));
  Write("queue", "1 COMPLETED\n");
  EXPECT_TRUE(CheckNoJobs(options_.out).ok());
  setenv("PATH", path.c_str(), 1);
}

TEST_F(SlurmLauncherTest, AnotherLauncherForTheSameDirectoryIsRefused) {
  EXPECT_TRUE(Launch().ok());
  options_.slurm.nodes = 2;
  EXPECT_THAT(std::string(Launch().message()), HasSubstr("--nodes is 2, but was 0"));
  options_.launcher = LauncherKind::kLocal;
  EXPECT_THAT(std::string(Launch().message()), HasSubstr("--launcher is none, but was \"slurm\""));
}

TEST_F(SlurmLauncherTest, WithoutSlurmTheProgramIsNamed) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", (root_ + "/nothing").c_str(), 1);
  const absl::Status status = SlurmLauncher::Create(options_, &signals_).status();
  setenv("PATH", path.c_str(), 1);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no sbatch in PATH"), HasSubstr("leave out --launcher")));
}

TEST_F(SlurmLauncherTest, ATrialGoesOnWhileOthersOfItsRungTrain) {
  options_.algorithms = {"downpour"};
  options_.search = SearchKind::kHalving;
  // The first rung ends when a trial has begun the second.
  Batch(R"(case $DIR in
*/search/*-rung-1) case $JOB in [123]) finish; state COMPLETED;; *) state RUNNING;; esac;;
*/search/*-rung-2) finish; state COMPLETED
  for run in out/search/*-rung-1; do cp $DIR/summary.json $run; done
  sed -i s/RUNNING/COMPLETED/ queue;;
*) finish; state COMPLETED;;
esac)");
  ASSERT_TRUE(Launch().ok()) << out_.str();
  const std::vector<std::string> submitted = Submitted();
  EXPECT_EQ(submitted.size(), 11u + 3u + 1u);
  EXPECT_EQ(submitted.back(), "downpour-2-workers-seed-1");
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("downpour, 2 workers, rung 1: "), HasSubstr("downpour, 2 workers, rung 2: ")));
  EXPECT_TRUE(Launch().ok());
  EXPECT_EQ(Submitted().size(), submitted.size()) << "all are done";
}

}  // namespace
}  // namespace catchment
