// Tests that the mistakes of new users get an answer that names the remedy, from every command that can meet
// them.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/advise/advise.h"
#include "cli/cluster/manifests.h"
#include "cli/compare/compare.h"
#include "cli/job/commands.h"
#include "cli/live/commands.h"
#include "cli/local/train.h"
#include "cli/simulate/simulate.h"
#include "cli/tune/tune.h"
#include "cli/watch/watch.h"
#include "common/program/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_outcome.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Command = int (*)(const std::vector<std::string>& args, const Streams& streams);

int Pack(const std::vector<std::string>& args, const Streams& streams) { return RunPack(args, {}, streams); }

// The commands that change a job with --set.
const std::map<std::string, Command>& CommandsOfJobs() {
  static const auto* const all =
      new std::map<std::string, Command>{{"validate", RunValidate},        {"train", RunTrainCommand},
                                         {"compare", RunCompareCommand},   {"tune", RunTuneCommand},
                                         {"simulate", RunSimulateCommand}, {"advise", RunAdviseCommand},
                                         {"manifests", RunManifests},      {"pack", Pack}};
  return *all;
}

std::string Error(Command command, const std::vector<std::string>& args) {
  const CommandOutcome outcome = RunToOutcome(command, args);
  EXPECT_NE(outcome.code, 0) << outcome.out;
  return outcome.err;
}

TEST(Mistakes, AFieldOfTheJobAsAFlagLeadsToSet) {
  for (const auto& [flag, set] : std::vector<std::pair<std::string, std::string>>{
           {"--epochs=3", "--set epochs=3"},
           {"--epoch=3", "--set epochs=3"},
           {"--lr=0.1", "--set optimizer.learning_rate=0.1"},
           {"--learning-rate=0.1", "--set optimizer.learning_rate=0.1"},
           {"--momentum=0.5", "--set optimizer.momentum=0.5"},
           {"--weight_decay=0.5", "--set optimizer.weight_decay=0.5"},
           {"--batch-size=32", "--set batch_size=32"},
           {"--batch_size=32", "--set batch_size=32"},
           {"--preset=easgd", "--set algorithm.preset=easgd"},
           {"--optimizer=ADAM", "--set optimizer.kind=ADAM"},
           {"--optimizer.momentum=0.5", "--set optimizer.momentum=0.5"},
           {"--local_steps=8", "--set algorithm.contribution.pseudo_gradient.local_steps=8"},
           {"--samples=100", "--set samples=100"},
           {"--updates=100", "--set updates=100"},
           {"epochs=3", "--set epochs=3"},
           {"optimizer.learning_rate=0.1", "--set optimizer.learning_rate=0.1"},
       }) {
    for (const auto& [name, command] : CommandsOfJobs()) {
      EXPECT_THAT(Error(command, {"examples/drawn_digits.textproto", flag}),
                  AllOf(HasSubstr("is a field of the job"), HasSubstr(set)))
          << name << " " << flag;
    }
  }
  EXPECT_THAT(Error(RunTrainCommand, {"examples/drawn_digits.textproto", "--algorithm=easgd"}),
              HasSubstr("--set algorithm.preset=easgd"));
  EXPECT_THAT(Error(RunCompareCommand, {"examples/drawn_digits.textproto", "--algorithm=easgd"}),
              HasSubstr("is it --algorithms?"));
  EXPECT_THAT(Error(RunTrainCommand, {"examples/drawn_digits.textproto", "--epochs", "3"}),
              HasSubstr("--set epochs=3"));
}

TEST(Mistakes, AFileWithTheNameOfAFieldIsAFile) {
  const std::string directory = ::testing::TempDir() + "/lr=0.1";
  std::filesystem::create_directories(directory);
  std::filesystem::copy_file("examples/drawn_digits.textproto", directory + "/job.textproto",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(RunToOutcome(RunValidate, {directory + "/job.textproto"}).code, 0);
}

TEST(Mistakes, AFlagThatIsMisspelledIsStillFound) {
  EXPECT_THAT(Error(RunTrainCommand, {"examples/drawn_digits.textproto", "--worker=3"}),
              HasSubstr("is it --workers?"));
  EXPECT_THAT(Error(RunTrainCommand, {"examples/drawn_digits.textproto", "--resum"}),
              HasSubstr("is it --resume?"));
  EXPECT_THAT(Error(RunTrainCommand, {"examples/drawn_digits.textproto", "--frobnicate=3"}),
              AllOf(HasSubstr("unknown flag --frobnicate"), Not(HasSubstr("is a field"))));
}

TEST(Mistakes, AProgramAsTheJobLeadsToTheFlag) {
  const std::string directory = ::testing::TempDir() + "/programs";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/train.py") << "import torch\n\n\ndef f():\n    return 1\n";
  std::ofstream(directory + "/run") << "#!/bin/sh\npython train.py\n";
  // The other commands look for their daemons first.
  for (const auto& [name, flags] :
       std::map<std::string, std::vector<std::string>>{{"validate", {}},
                                                       {"advise", {}},
                                                       {"manifests", {"--image=i"}},
                                                       {"pack", {"--out=" + directory + "/packed"}},
                                                       {"simulate", {"--step=constant:1ms"}}}) {
    for (const auto& [file, program] : std::vector<std::pair<std::string, std::string>>{
             {"/train.py", "--program=\"python " + directory + "/train.py\""},
             {"/run", "--program=\"" + directory + "/run\""}}) {
      std::vector<std::string> args = flags;
      args.push_back(directory + file);
      EXPECT_THAT(Error(CommandsOfJobs().at(name), args),
                  AllOf(HasSubstr("is a program, not a job"), HasSubstr(program)))
          << name;
    }
  }
}

TEST(Mistakes, AProgramThatTheShellCannotStartIsNamed) {
  const std::string file = ::testing::TempDir() + "/program.py";
  std::ofstream(file) << "import catchment\n";
  for (const auto& [program, remedy] : std::vector<std::pair<std::string, std::string>>{
           {file, "--program=\"python " + file + "\""},
           {file + " --epochs 3", "--program=\"python " + file + " --epochs 3\""},
           {"no-such-interpreter train.py", "a command for /bin/sh"}}) {
    EXPECT_THAT(Error(RunValidate, {"--program=" + program}),
                AllOf(HasSubstr("could not be started"), HasSubstr(remedy), Not(HasSubstr("join()"))));
  }
}

TEST(Mistakes, WhatIsNeitherADirectoryNorAnAddressIsNamed) {
  for (const auto& [name, command] : std::map<std::string, Command>{
           {"status", RunStatus}, {"stop", RunStop}, {"health", RunHealth}, {"watch", RunWatch}}) {
    EXPECT_THAT(Error(command, {"no-such-directory"}),
                HasSubstr("'no-such-directory' is neither a directory, the --out of a run, nor HOST:PORT"))
        << name;
    EXPECT_THAT(Error(command, {"node0:port"}), HasSubstr("is not HOST:PORT")) << name;
  }
}

TEST(Mistakes, NamesOfAlgorithmsLeadToTheNearest) {
  for (const auto& [name, preset] :
       std::vector<std::pair<std::string, std::string>>{{"asynch", "downpour"},
                                                        {"asyncronous", "downpour"},
                                                        {"synchronus", "sync"},
                                                        {"all_reduce", "sync"},
                                                        {"localsgd", "local_sgd"},
                                                        {"dilocco", "diloco"},
                                                        {"fed-avg", "local_sgd"}}) {
    EXPECT_THAT(Error(RunCompareCommand, {"examples/drawn_digits.textproto", "--algorithms=sync," + name}),
                HasSubstr("did you mean " + preset + "?"))
        << name;
  }
}

TEST(Mistakes, ARangeInAnotherFormIsShownInOurs) {
  for (const std::string range : {"0.001-1", "0.001:1", "0.001 to 1", "0.001~1", "1e-3-1"}) {
    EXPECT_THAT(
        Error(RunTuneCommand, {"examples/drawn_digits.textproto", "--over=optimizer.learning_rate=" + range}),
        AllOf(HasSubstr("a range is written with two points"), HasSubstr("..1")))
        << range;
  }
  for (const std::string value : {"0.1", "COSINE", "1e-3"}) {
    EXPECT_THAT(
        Error(RunTuneCommand, {"examples/drawn_digits.textproto", "--over=optimizer.learning_rate=" + value}),
        HasSubstr("has one value"))
        << value;
  }
}

TEST(Mistakes, ABudgetThatIsRefusedSaysWhy) {
  const auto error = [](const std::string& budget) {
    return Error(RunCompareCommand, {"no-such-job.textproto", "--algorithms=sync", "--budget=" + budget});
  };
  EXPECT_THAT(error("samples:1e5"), Not(HasSubstr("--budget"))) << "it is a whole number";
  EXPECT_THAT(error("samples:1.5"), HasSubstr("takes a whole number of samples"));
  EXPECT_THAT(error("samples:0"), HasSubstr("takes a whole number of samples"));
  EXPECT_THAT(error("samples:many"), HasSubstr("takes a whole number of samples"));
  EXPECT_THAT(error("seconds:-1"), HasSubstr("takes a number of seconds above 0"));
  EXPECT_THAT(error("60000"), HasSubstr("did you mean samples:60000?"));
  EXPECT_THAT(error("epochs:3"), HasSubstr("takes samples:N or seconds:N"));
}

}  // namespace
}  // namespace catchment
