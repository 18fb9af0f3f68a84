// Tests `catchment train` with daemons that follow a script (fake_server.cc, and shell scripts for workers).
#include "cli/local/train.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainTest : public ::testing::Test {
 protected:
  TrainTest()
      : root_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    options_.job = "examples/mnist_mlp.textproto";
    options_.out = root_ + "/out";
    options_.args = {options_.job, "--out=" + options_.out};
    options_.workers = 1;
    options_.evaluator = false;
    // Tests that wait for a limit shorten it.
    bounds_.poll = 0.05;
    Worker("touch $OUT/finish");
    Script("");
  }
  ~TrainTest() override {
    unsetenv("FAKE_MASTER");
    unsetenv("FAKE_SERVER");
  }

  void Script(const std::string& words) { setenv("FAKE_MASTER", words.c_str(), 1); }

  // Sets the script that every worker and the evaluator runs. With `first A; B` the first to start runs A and
  // stops, and the others run B.
  void Worker(const std::string& body) {
    const std::string path = root_ + "/worker.sh";
    std::ofstream(path) << "#!/bin/sh\nOUT=" << options_.out << "\nMUTEX=" << root_ << "/first\n"
                        << "wait_for() { until [ -e \"$1\" ]; do sleep 0.01; done; }\n"
                        << "wait_gone() { while kill -0 $1 2>/dev/null; do sleep 0.01; done; }\n"
                        << "wait_asked() { rm -f $OUT/asked; wait_for $OUT/asked; }\n"
                        << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  int Train() {
    const std::string server = std::string(std::getenv("TEST_SRCDIR")) + "/catchment/tests/cli/fake_server";
    SignalWaiter signals;
    const absl::StatusOr<int> exit_code =
        RunTrain(options_, {server, root_ + "/worker.sh"}, bounds_, &signals, {&out_, &err_});
    err_ << exit_code.status().message();
    return exit_code.value_or(kExitFailed);
  }

  void ExpectNoChildLeft() {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }

  const std::string root_;
  TrainOptions options_;
  TrainBounds bounds_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(TrainTest, AFinishedJobEndsWithItsSummary) {
  Script("scored");
  Worker("wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_EQ(err_.str(), "");
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("training mnist_mlp with "), HasSubstr("on 1 server and 1 worker"),
                                HasSubstr("test accuracy 50.00 %"), HasSubstr("  outcome  done\n"),
                                HasSubstr(options_.out + "/model.safetensors")));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, ProgressOfARunInSecondsLeavesOutTheSamplesThatItCannotReach) {
  Script("scored endless");
  bounds_.train = 1000;
  Worker("wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("test accuracy 50.00 %"), HasSubstr(" 100 samples"),
                                Not(HasSubstr("1,000,000,000,000"))));
}

TEST_F(TrainTest, TheResolvedJobIsWritten) {
  options_.set = {"seed=42"};
  EXPECT_EQ(Train(), 0) << err_.str();
  const auto job = LoadJob(options_.out + "/job.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->seed(), 42u);
  EXPECT_EQ(job->workers(), 1u);
  EXPECT_TRUE(job->optimizer().has_learning_rate());
}

TEST_F(TrainTest, WithJsonStandardOutputIsTheSummaryAlone) {
  options_.json = true;
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_EQ(out_.str(), "{\"phase\": \"DONE\", \"test_accuracy\": 0.5}\n");
  EXPECT_THAT(err_.str(), HasSubstr("training mnist_mlp"));
}

TEST_F(TrainTest, AWorkerThatIsKilledIsStartedAgain) {
  options_.workers = 2;
  // A second request is sent after the first answer, and with it the loss, has been processed.
  Worker(
      "if mkdir $MUTEX 2>/dev/null; then\n"
      "  echo $$ >$MUTEX/new; mv $MUTEX/new $MUTEX/pid; echo my last words; kill -9 $$\n"
      "fi\n"
      "wait_for $MUTEX/pid; wait_gone $(cat $MUTEX/pid); wait_asked; wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("died: killed by SIGKILL (9)"), HasSubstr("    my last words"),
                                HasSubstr("again (1 of at most 5 times)")));
}

TEST_F(TrainTest, AWorkerThatIsLostToTheMasterIsKilledAndStartedAgain) {
  Script("watches");
  Worker(
      "if mkdir $MUTEX 2>/dev/null; then\n"
      "  echo $$ >$MUTEX/new; mv $MUTEX/new $OUT/hung; while true; do sleep 1; done\n"
      "fi\n"
      "wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(),
              AllOf(ContainsRegex("was lost to the master, and has not come back in .* s: killing it"),
                    HasSubstr("started worker-0 again (1 of at most 5 times)")));
}

TEST_F(TrainTest, AWorkerThatHasComeBackIsLeftAlone) {
  Script("watches");
  Worker(
      "echo $$ >$OUT/new; cp $OUT/new $OUT/pids; mv $OUT/new $OUT/hung\n"
      "for i in 1 2 3 4 5 6 7 8 9 10; do wait_asked; sleep 0.05; done; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), Not(HasSubstr("killing it")));
}

TEST_F(TrainTest, AWorkerThatIsLostToTheMasterIsLeftAloneWithoutALimit) {
  Script("watches patient");
  Worker(
      "echo $$ >$OUT/new; mv $OUT/new $OUT/hung\n"
      "for i in 1 2 3 4 5 6 7 8 9 10; do wait_asked; done; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), Not(HasSubstr("killing it")));
}

TEST_F(TrainTest, AWorkerThatAlwaysHangsEndsTheJobWithTheMastersReason) {
  Script("watches");
  Worker("echo $$ >$OUT/$$; mv $OUT/$$ $OUT/hung; while true; do sleep 1; done");
  EXPECT_EQ(Train(), kExitFailed);
  EXPECT_THAT(err_.str(),
              ContainsRegex("all workers are lost; the last one, worker-0: .*no progress[^\n]*\n$"));
}

TEST_F(TrainTest, AWorkerIsNamedAsTheJobNamesIt) {
  Script("swapped");
  options_.workers = 2;
  // worker-0 writes its process id first, so that it is worker 1 of the job.
  Worker(
      "case \"$*\" in *--local_index=1*)\n"
      "  wait_for $OUT/first; (cat $OUT/first; echo $$) >$OUT/new; mv $OUT/new $OUT/pids\n"
      "  wait_asked; wait_asked; wait_asked; exit 3;;\n"
      "esac\n"
      "echo $$ >$OUT/new0; mv $OUT/new0 $OUT/first; wait_for $OUT/pids\n"
      "wait_gone $(tail -n 1 $OUT/pids); wait_asked; wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(),
              AllOf(ContainsRegex("worker-1 \\(pid [0-9]+, worker 0 of the job\\) died: exit code 3"),
                    Not(HasSubstr(" is worker "))));
}

TEST_F(TrainTest, AWorkerThatIsAlwaysKilledIsStartedAgainFiveTimes) {
  Worker("kill -9 $$");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("started worker-0 again (5 of at most 5 times)"),
                                Not(HasSubstr("started worker-0 again (6"))));
  EXPECT_THAT(err_.str(), HasSubstr("all workers are lost"));
}

TEST_F(TrainTest, OneWorkerThatFailsIsReportedAndTheOtherContinues) {
  options_.workers = 2;
  Worker(
      "if mkdir $MUTEX 2>/dev/null; then\n"
      "  echo $$ >$MUTEX/new; mv $MUTEX/new $MUTEX/pid; echo my last words; exit 3\n"
      "fi\n"
      "wait_for $MUTEX/pid; wait_gone $(cat $MUTEX/pid); wait_asked; wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("died: exit code 3"), HasSubstr("    my last words"),
                                HasSubstr("training continues with 1 worker"), Not(HasSubstr(" again ("))));
}

TEST_F(TrainTest, AllWorkersLostEndsTheJobAndSaysHowToGoOn) {
  Script("checkpoint");
  options_.workers = 2;
  Worker("echo no memory >&2; exit 1");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("worker-0"), HasSubstr("worker-1"), HasSubstr("exit code 1"),
                                HasSubstr("no memory")));
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("all workers are lost"), HasSubstr("To resume from the last checkpoint"),
                    HasSubstr(options_.out + " --resume")));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, WithoutACheckpointNoneIsPromised) {
  Worker("exit 1");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("No checkpoint was written"), Not(HasSubstr("--resume"))));
}

TEST_F(TrainTest, AWorkerLostBeforeTrainingBeginsEndsTheJob) {
  Script("waiting");
  options_.workers = 2;
  Worker(
      "if mkdir $MUTEX 2>/dev/null; then echo 'E20261129 12:00:00.000000 7 a.cc:1] no data'; exit 1; fi; "
      "exec sleep 1000");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr(": no data\n"));
  EXPECT_THAT(err_.str(), ContainsRegex("worker-[01] was lost before training began: no data\n$"));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, AResumedRunThatDoesNotTrainIsNotToBeResumed) {
  Script("checkpoint");
  Worker("exit 1");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("To resume"));
  err_.str("");
  Script("checkpoint waiting");
  options_.resume = AutoSwitch::kOn;
  Worker("echo other data; exit 1");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("was lost before training began: other data\n"), Not(HasSubstr("To resume"))));
}

TEST_F(TrainTest, AWorkerLostWhileARecoveredJobWaitsIsNotLostBeforeTraining) {
  Script("waiting recovers");
  options_.workers = 2;
  Worker(
      "if mkdir $MUTEX 2>/dev/null; then echo $$ >$MUTEX/new; mv $MUTEX/new $MUTEX/pid; exit 1; fi\n"
      "wait_for $MUTEX/pid; wait_gone $(cat $MUTEX/pid); wait_asked; wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("training continues with 1 worker"));
}

// The master ends with the job's reason after its last answer was WAITING and before it could be asked again.
TEST_F(TrainTest, TheMastersReasonIsReportedOfAJobThatFailedAfterALostWorker) {
  Script("waiting");
  Worker(
      "wait_asked; echo training has diverged >$OUT/fail.new; "
      "mv $OUT/fail.new $OUT/fail; wait_for $OUT/deaf\n"
      "pid=$$; (wait_gone $pid; touch $OUT/failed) >/dev/null 2>&1 & exit 1");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("catchment train: the job failed: training has diverged\n"),
                    HasSubstr("No checkpoint was written"), Not(HasSubstr("before training began"))));
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("worker-0"), HasSubstr("server-0"), Not(HasSubstr("before training began"))));
}

// Another process is the first to be seen, but the job had a reason of its own.
TEST_F(TrainTest, TheReasonInTheSummaryIsReportedInPlaceOfAProcess) {
  Worker(
      "wait_asked; touch $OUT/failed; echo the disk is full >$OUT/fail.new; mv $OUT/fail.new $OUT/fail\n"
      "exec sleep 1000");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("catchment train: the job failed: the disk is full\n"));
  EXPECT_THAT(out_.str(), HasSubstr("server-0"));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, WorkersThatAllLeaveAnUnfinishedJobEndIt) {
  Worker("echo the stream has ended; exit 0");
  bounds_.orphan = 0.05;
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("no worker is running, but the job is not finished"),
                                HasSubstr("the last one, worker-0: the stream has ended\n")));
}

TEST_F(TrainTest, ALostServerEndsTheJob) {
  setenv("FAKE_SERVER", "die", 1);
  options_.servers = 2;
  Worker("exec sleep 1000");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("server-1"), HasSubstr("died: exit code 3")));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, AMasterThatRefusesIsQuoted) {
  Script("refuse");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("server-0 did not start: exit code 1"), HasSubstr("the data is missing")));
}

TEST_F(TrainTest, AMasterThatNeverListensIsGivenUp) {
  Script("mute");
  bounds_.listen = 0.1;
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("server-0 did not listen within 0.1 s"));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, AMasterThatDoesNotAnswerIsGivenUp) {
  Script("deaf");
  bounds_.silence = 0.2;
  Worker("exec sleep 1000");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("the master has not answered for 0.2 s"));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, AJobInWhichNothingMovesIsGivenUp) {
  bounds_.stall = 0.2;
  Worker("exec sleep 1000");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("no progress for 0.2 s"), HasSubstr("--stall_seconds")));
}

TEST_F(TrainTest, ProcessesThatIgnoreSigtermAreKilled) {
  Script("stubborn");
  bounds_.stall = bounds_.stop = bounds_.end = 0.2;
  Worker("trap '' TERM; while :; do sleep 0.1; done");
  EXPECT_EQ(Train(), 1);
  ExpectNoChildLeft();
}

TEST_F(TrainTest, ASignalStopsTheJobInOrder) {
  Script("checkpoint");
  Worker("kill -TERM $PPID; exec sleep 1000");
  bounds_.end = 0.2;  // this worker gets no signal to end
  EXPECT_EQ(Train(), 128 + SIGTERM) << err_.str();
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("SIGTERM: stopping after saving a checkpoint"), HasSubstr("  outcome  stopped"),
                    HasSubstr("To resume from the last checkpoint")));
  const auto log = ReadTextFile(options_.out + "/logs/server-0.log");
  ASSERT_TRUE(log.ok());
  EXPECT_THAT(*log, HasSubstr("Stop: SIGTERM to `catchment train`"));
  ExpectNoChildLeft();
}

// A batch system warns, repeats its warning (SIGXCPU: every second), and sends SIGTERM at the limit.
TEST_F(TrainTest, WarningsOfABatchSystemStopTheJobInOrder) {
  for (const std::string warning : {"USR1", "USR2", "XCPU"}) {
    fs::remove_all(options_.out);
    Script("checkpoint");
    Worker("for signal in " + warning + " " + warning +
           " TERM; do kill -$signal $PPID; sleep 0.1; done; exec sleep 1000");
    bounds_.end = 0.2;  // this worker gets no signal to end
    EXPECT_GT(Train(), 128) << err_.str();
    EXPECT_THAT(out_.str(), AllOf(HasSubstr("SIG" + warning + ": stopping after saving a checkpoint"),
                                  HasSubstr("  outcome  stopped"), Not(HasSubstr("killing"))));
    ExpectNoChildLeft();
  }
}

TEST_F(TrainTest, ASecondSignalKills) {
  Script("stubborn");
  // The master's log shows that the first one has been handled.
  Worker(
      "kill -INT $PPID; until grep -q Stop $OUT/logs/server-0.log; do sleep 0.01; done\n"
      "kill -TERM $PPID; exec sleep 1000");
  EXPECT_EQ(Train(), 128 + SIGTERM);
  EXPECT_THAT(err_.str(), HasSubstr("killed by a second signal (SIGTERM)"));
  ExpectNoChildLeft();
}

TEST_F(TrainTest, ALostEvaluatorIsStartedAgainTwiceAndTrainingGoesOn) {
  options_.evaluator = true;
  Worker(
      "case \"$*\" in *--role=evaluator*) echo $$ >>$OUT/starts; exit 1;; esac\n"
      "until [ \"$(cat $OUT/starts 2>/dev/null | wc -l)\" = 3 ]; do sleep 0.01; done\n"
      "wait_gone $(tail -n 1 $OUT/starts); wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 1) << out_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("evaluator (pid"), HasSubstr("started the evaluator again"),
                                HasSubstr("the evaluator is not restarted"), HasSubstr("  outcome  done\n")));
  EXPECT_THAT(err_.str(),
              HasSubstr("the job's results are kept, but the evaluator failed, so scores may be missing"));
}

TEST_F(TrainTest, AnEvaluatorThatRecoversDoesNoHarm) {
  options_.evaluator = true;
  Worker(
      "case \"$*\" in *--role=evaluator*)\n"
      "  if mkdir $MUTEX 2>/dev/null; then exit 1; fi\n"
      "  echo $$ >$MUTEX/new; mv $MUTEX/new $MUTEX/pid; exit 0;;\n"
      "esac\n"
      "wait_for $MUTEX/pid; wait_gone $(cat $MUTEX/pid); wait_asked; wait_asked; touch $OUT/finish");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("started the evaluator again"));
}

TEST_F(TrainTest, AnEvaluatorThatFailsWhenTheMasterHasEndedIsNotStartedAgain) {
  options_.evaluator = true;
  Worker(
      "case \"$*\" in *--role=evaluator*) wait_for $OUT/summary.json; sleep 0.2; "
      "echo no score; exit 1;; esac\n"
      "touch $OUT/finish");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("    no score"), Not(HasSubstr("started the evaluator again"))));
  EXPECT_THAT(err_.str(), HasSubstr("the evaluator failed"));
}

TEST_F(TrainTest, AProgramThatFailsAfterItsLastStepIsReportedAndTheResultsAreKept) {
  options_.workers = 2;
  // One ends before the master, the other after it.
  Worker(
      "if mkdir $MUTEX 2>/dev/null; then echo $$ >$MUTEX/new; mv $MUTEX/new $MUTEX/pid; "
      "echo cannot save; exit 4; fi\n"
      "wait_for $MUTEX/pid; wait_gone $(cat $MUTEX/pid); wait_asked; wait_asked; touch $OUT/finish\n"
      "wait_for $OUT/summary.json; sleep 0.2; exit 4");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("    cannot save"), HasSubstr("  outcome  done\n"),
                                Not(HasSubstr("training continues"))));
  EXPECT_THAT(
      err_.str(),
      HasSubstr("the job's results are kept, but the program of worker-0 failed after its last step, and the "
                "program of worker-1 failed after its last step; logs are in " +
                options_.out + "/logs"));
  EXPECT_THAT(err_.str(), Not(HasSubstr("resume")));
}

TEST_F(TrainTest, ABadJobStartsAndTouchesNothing) {
  options_.set = {"batch_size=0"};
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("batch_size"));
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(TrainTest, AModelThatCannotBeSplitStartsAndTouchesNothing) {
  options_.set = {"algorithm.preset=decoupled_diloco",
                  "model={layers {flatten {}} layers {dense {units: 10}}}",
                  "algorithm.contribution.pseudo_gradient.fragments=1000"};
  EXPECT_EQ(Train(), kExitFailed);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("is not valid"), HasSubstr("pseudo_gradient.fragments: ")));
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(TrainTest, APlateauWithoutAnEvaluatorIsRefusedBeforeAnythingIsTouched) {
  options_.set = {"optimizer.schedule={decay:PLATEAU}"};
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--evaluator=false: optimizer.schedule.decay is PLATEAU"));
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(TrainTest, ATargetWithoutAnEvaluatorIsRefusedBeforeAnythingIsTouched) {
  options_.set = {"evaluation={target_loss: 0.1 keep_best: true}"};
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--evaluator=false: evaluation.target_loss is set, which depends on the "
                                    "evaluator's scores; omit --evaluator or the field"));
  options_.set = {"evaluation={keep_best: true}"};
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--evaluator=false: evaluation.keep_best is set"));
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(TrainTest, AFinishedRunIsLeftAlone) {
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("contains the result of a finished run"), HasSubstr("--overwrite")));
}

TEST_F(TrainTest, ResumingTakesTheRunsOwnJob) {
  Script("checkpoint");
  options_.set = {"seed=42"};
  EXPECT_EQ(Train(), 0) << err_.str();
  options_ = TrainOptions();
  options_.out = root_ + "/out";
  options_.evaluator = false;
  options_.resume = AutoSwitch::kOn;
  options_.set = {"epochs=9"};
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("resuming mnist_mlp"));
  EXPECT_EQ(LoadJob(options_.out + "/job.textproto")->seed(), 42u);
}

TEST_F(TrainTest, TheSameCommandWithResumeAutoBeginsContinuesAndKeepsTheResult) {
  Script("checkpoint");
  options_.resume = AutoSwitch::kAuto;
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("training mnist_mlp"));
  const std::string summary = options_.out + "/summary.json";
  fs::remove(summary);
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("resuming mnist_mlp"));
  EXPECT_TRUE(fs::exists(summary));
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("contains the result of this finished job"));
}

// Hugging Face's scripts are started with --output_dir=./, and other trainers use the same names.
TEST_F(TrainTest, AUsersProjectIsRefusedAndNothingOfItIsTouched) {
  options_.out = root_ + "/project";
  options_.job = options_.out + "/job.textproto";
  fs::create_directories(options_.out + "/logs");
  fs::copy_file("examples/mnist_mlp.textproto", options_.job);
  std::ofstream(options_.job, std::ios::app) << "# my comment\n";
  std::ofstream(options_.out + "/logs/notes.txt") << "mine";
  const std::string job = ReadTextFile(options_.job).value_or("");
  for (const bool overwrite : {false, true, false}) {
    options_.overwrite = overwrite;
    EXPECT_EQ(Train(), 1);
    EXPECT_THAT(err_.str(), HasSubstr(options_.job + " was not written by Catchment"));
    EXPECT_EQ(ReadTextFile(options_.job).value_or(""), job);
    EXPECT_EQ(ReadTextFile(options_.out + "/logs/notes.txt").value_or(""), "mine");
    EXPECT_EQ(std::distance(fs::directory_iterator(options_.out), {}), 2);
  }
}

TEST_F(TrainTest, TheJobFileThatIsGivenIsNeverReplaced) {
  options_.job = root_ + "/out/mine.textproto";
  fs::create_directories(options_.out);
  fs::copy_file("examples/mnist_mlp.textproto", options_.job);
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_EQ(ReadTextFile(options_.job).value_or(""), ReadTextFile("examples/mnist_mlp.textproto").value());
  // The run's own file, in which the user has written meanwhile.
  options_.job = options_.out + "/job.textproto";
  options_.overwrite = true;
  std::ofstream(options_.job, std::ios::app) << "# my comment\n";
  const std::string text = ReadTextFile(options_.job).value_or("");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr(options_.job + " is the job file of the run"));
  EXPECT_EQ(ReadTextFile(options_.job).value_or(""), text);
  EXPECT_TRUE(fs::exists(options_.out + "/summary.json")) << "nothing is deleted";
}

TEST_F(TrainTest, AResumedRunHasTheProgramOfItsDirectory) {
  v1::Job job;
  v1::ExternalTensor* const tensor = job.mutable_model()->mutable_external()->add_tensors();
  tensor->set_name("weight");
  tensor->add_shape(2);
  job.mutable_model()->set_initial_weights(root_ + "/initial.safetensors");
  job.mutable_data()->mutable_external()->set_train_samples(500);
  options_.job = root_ + "/job.textproto";
  std::ofstream(options_.job) << JobText(job);
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("add --program=COMMAND"));
  EXPECT_FALSE(fs::exists(options_.out)) << "nothing has begun";
  Script("checkpoint");
  Worker("echo \"$*\" >$OUT/args; touch $OUT/finish");
  options_.program = "python train.py --depth 2";
  EXPECT_EQ(Train(), 0) << err_.str();
  options_.job.clear();
  options_.program.clear();
  options_.resume = AutoSwitch::kOn;
  options_.set = {"epochs=9"};
  fs::remove(options_.out + "/args");
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(ReadTextFile(options_.out + "/args").value_or(""),
              HasSubstr("--program=python train.py --depth 2"));
}

TEST_F(TrainTest, ResumingInANewDirectorySaysThatThereIsNoRun) {
  options_.job.clear();
  options_.resume = AutoSwitch::kOn;
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("--resume: there is no run in " + options_.out), Not(HasSubstr("valid"))));
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(TrainTest, AJobFileThatCannotBeReadIsNotCalledInvalid) {
  options_.job = root_ + "/missing";
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("the job file: cannot open " + options_.job), Not(HasSubstr("not valid"))));
  options_.job = root_;
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("the job file: " + root_ + ": is not a regular file"));
}

TEST_F(TrainTest, ResumingAFinishedRunKeepsItsResult) {
  Script("checkpoint");
  EXPECT_EQ(Train(), 0) << err_.str();
  options_.resume = AutoSwitch::kOn;
  EXPECT_EQ(Train(), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("contains the result of this finished job"));
  EXPECT_TRUE(fs::exists(options_.out + "/summary.json"));
}

TEST_F(TrainTest, AMissingWorkerProgramIsNamed) {
  fs::remove(root_ + "/worker.sh");
  EXPECT_EQ(Train(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("cannot start worker-0: " + root_ + "/worker.sh"));
  ExpectNoChildLeft();
}

}  // namespace
}  // namespace catchment
