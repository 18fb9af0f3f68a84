#include "cli/compare/slurm_job.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Returns the command that submits a run of downpour.
std::string Command(const CompareOptions& options, int workers) {
  PlannedRun run;
  run.directory = "runs/downpour-4-workers-seed-2";
  run.workers = workers;
  const auto layout = LayOut(options.slurm, workers);
  EXPECT_TRUE(layout.ok()) << layout.status();
  const SlurmPrograms programs = {"/usr/bin/sbatch", "/usr/bin/squeue", "/usr/bin/scancel",
                                  "/b/catchment.sbatch"};
  return absl::StrJoin(
      SbatchCommand(programs, options, layout.value_or(SlurmLayout()), run, "/scratch/out/run"), " ");
}

TEST(SlurmJob, AWorkerIsATask) {
  CompareOptions options;
  options.slurm.nodes = 2;
  options.threads = 3;
  EXPECT_EQ(Command(options, 4),
            "/usr/bin/sbatch --parsable --no-requeue --job-name=downpour-4-workers-seed-2 "
            "--output=/scratch/out/run/logs/slurm.log --nodes=2 --ntasks=4 --cpus-per-task=3 "
            "/b/catchment.sbatch --out=/scratch/out/run --servers=1 /scratch/out/run/job.textproto");
}

TEST(SlurmJob, AWorkerHasAGpu) {
  CompareOptions options;
  options.slurm = {2, 4, "gpu"};
  options.servers = 2;
  options.program = "python train.py";
  EXPECT_EQ(Command(options, 8),
            "/usr/bin/sbatch --parsable --no-requeue --job-name=downpour-4-workers-seed-2 "
            "--output=/scratch/out/run/logs/slurm.log --nodes=2 --ntasks=8 --cpus-per-task=1 "
            "--ntasks-per-node=4 --gpus-per-node=4 --partition=gpu /b/catchment.sbatch "
            "--out=/scratch/out/run --servers=2 --program=python train.py /scratch/out/run/job.textproto");
}

// Returns "NODES x GPUS".
std::string Layout(const SlurmOptions& options, int workers) {
  const auto layout = LayOut(options, workers);
  if (!layout.ok()) return std::string(layout.status().message());
  return absl::StrJoin({layout->nodes, layout->gpus_per_node}, " x ");
}

TEST(SlurmJob, NoMoreNodesThanWorkers) {
  EXPECT_EQ(Layout({}, 4), "1 x 0");
  EXPECT_EQ(Layout({4, 0, ""}, 2), "2 x 0");
  EXPECT_EQ(Layout({4, 0, ""}, 6), "4 x 0");
}

TEST(SlurmJob, WithGpusTheFewestNodesThatShareTheWorkersEqually) {
  EXPECT_EQ(Layout({4, 4, ""}, 4), "1 x 4");
  EXPECT_EQ(Layout({4, 4, ""}, 6), "2 x 3");
  EXPECT_EQ(Layout({4, 4, ""}, 16), "4 x 4");
  EXPECT_THAT(Layout({4, 4, ""}, 7),
              HasSubstr("7 workers cannot be divided equally between at most 4 nodes"));
  EXPECT_THAT(Layout({4, 4, ""}, 17), HasSubstr("give more --nodes, or other --workers"));
}

TEST(SlurmJob, TheNumberOfAJobIsFoundBesideWarnings) {
  EXPECT_EQ(ParseJobId("12\n"), "12");
  EXPECT_EQ(ParseJobId("12;cluster\n"), "12");
  EXPECT_EQ(ParseJobId("sbatch: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n12\n"), "12");
  EXPECT_EQ(ParseJobId("sbatch: error: invalid partition specified: none\n"), "");
  EXPECT_EQ(ParseJobId(""), "");
}

TEST(SlurmJob, TheQueueHasAStateForEachJob) {
  EXPECT_THAT(ParseQueue("12 RUNNING\n13 PENDING\n14_1 RUNNING\nslurm_load_jobs error: ...\n"),
              ElementsAre(Pair("12", "RUNNING"), Pair("13", "PENDING")));
}

TEST(SlurmJob, OnlyAJobThatIsNotToBlameIsLost) {
  for (const char* state : {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED"}) {
    EXPECT_EQ(PhaseOf(state), SlurmPhase::kActive) << state;
  }
  for (const char* state : {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"}) {
    EXPECT_EQ(PhaseOf(state), SlurmPhase::kEnded) << state;
  }
  for (const char* state : {"NODE_FAIL", "PREEMPTED", ""})
    EXPECT_EQ(PhaseOf(state), SlurmPhase::kLost) << state;
}

}  // namespace
}  // namespace catchment
