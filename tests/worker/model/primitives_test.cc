// No step spends more than 2 % of oneDNN's time in reference loops, at any instruction set. oneDNN's own log
// (DNNL_VERBOSE) tells which implementation each primitive has; shares of one log do not depend on how busy
// the machine is. The instruction set is read once in a process, so each has processes of its own; one that
// the machine lacks is what the machine has.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

struct Primitive {
  bool reference = false;
  int runs = 0;
  double fastest = std::numeric_limits<double>::infinity();  // in milliseconds

  double milliseconds() const { return runs * fastest; }
};

struct Steps {
  std::string batch;
  std::map<std::string, Primitive> primitives;  // by kind, implementation, pass, layouts and shape
};

std::vector<std::string> RunWithLog(const std::string& model, const std::string& isa) {
  const std::string limit =
      isa.empty() ? "-u DNNL_MAX_CPU_ISA -u ONEDNN_MAX_CPU_ISA" : "DNNL_MAX_CPU_ISA=" + isa;
  const std::string command = absl::StrCat(
      "env ", limit, " DNNL_VERBOSE=1 OMP_NUM_THREADS=1 tests/worker/model/primitives_steps ", model);
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::string log;
  char buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) log.append(buffer, size);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return absl::StrSplit(log, '\n');
}

// onednn_verbose,exec,cpu,KIND,IMPLEMENTATION,PASS,LAYOUTS,ATTRIBUTES,AUXILIARY,SHAPE,MILLISECONDS
std::vector<Steps> Parse(const std::vector<std::string>& log) {
  std::vector<Steps> all;
  bool counts = false;
  for (const std::string& line : log) {
    if (absl::StartsWith(line, "steps: ")) all.push_back({.batch = line.substr(7)});
    if (absl::StartsWith(line, "steps: ") || line == "end") counts = line != "end";
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    double milliseconds;
    if (!counts || fields.size() < 11 || fields[1] != "exec") continue;
    if (!absl::SimpleAtod(fields.back(), &milliseconds)) continue;
    Primitive& primitive = all.back().primitives[absl::StrCat(fields[3], ",", fields[4], ",", fields[5], " ",
                                                              fields[6], " ", fields[9])];
    primitive.reference = absl::StartsWith(fields[4], "ref") || absl::StartsWith(fields[4], "simple");
    primitive.fastest = std::min(primitive.fastest, milliseconds);
    ++primitive.runs;
  }
  return all;
}

struct PrimitivesCase {
  const char* model;
  const char* isa;  // empty: without a limit

  // The products of dense and LSTM layers are calls of sgemm, which the log does not have.
  bool must_log() const {
    return model != absl::string_view("mnist_mlp") && model != absl::string_view("hep_lstm");
  }
};

class PrimitivesTest : public testing::TestWithParam<PrimitivesCase> {};

TEST_P(PrimitivesTest, StepsSpendAtMostTwoPercentInReferenceLoops) {
  const std::vector<Steps> all = Parse(RunWithLog(GetParam().model, GetParam().isa));
  ASSERT_FALSE(all.empty());
  for (const Steps& steps : all) {
    double total = 0, reference = 0;
    for (const auto& [what, primitive] : steps.primitives) total += primitive.milliseconds();
    EXPECT_TRUE(total > 0 || !GetParam().must_log())
        << "oneDNN logged no primitive for batch " << steps.batch;
    std::string loops;
    for (const auto& [what, primitive] : steps.primitives) {
      if (!primitive.reference) continue;
      reference += primitive.milliseconds();
      absl::StrAppend(&loops, "\n  ", 100 * primitive.milliseconds() / total, " %: ", what);
    }
    EXPECT_LE(reference, 0.02 * total) << "batch " << steps.batch << ":" << loops;
  }
}

std::vector<PrimitivesCase> AllCases() {
  std::vector<PrimitivesCase> cases;
  for (const char* model : {"mnist_cnn", "mnist_mlp", "hep_lstm", "resnet20_cifar10", "resnet50", "groups",
                            "odd_channels", "pooled_input"}) {
    for (const char* isa : {"AVX2", "AVX512_CORE", ""}) cases.push_back({model, isa});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(ModelsAndInstructionSets, PrimitivesTest, testing::ValuesIn(AllCases()),
                         [](const testing::TestParamInfo<PrimitivesCase>& info) {
                           const std::string isa = info.param.isa;
                           return absl::StrCat(info.param.model, "_", isa.empty() ? "unlimited" : isa);
                         });

}  // namespace
}  // namespace catchment
