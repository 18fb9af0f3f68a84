#include "common/measures/phrases.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "common/measures/measures.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

TEST(PhraseTest, NumbersHaveTheirUnits) {
  const Json facts = {{"wall_seconds", 80},
                      {"round_trip_p50_us", 2261.5},
                      {"bytes_pushed", 22.5e9},
                      {"test_accuracy", 0.977},
                      {"percent", 51.2},
                      {"processor_joules", 1234.4},
                      {"samples_per_second", 1920.4},
                      {"updates", 4800},
                      {"train_loss", 0.183149},
                      {"reason", "SIGINT"}};
  EXPECT_EQ(Phrase("{wall_seconds}|{round_trip_p50_us}|{bytes_pushed}|{test_accuracy}|{percent}", facts),
            "1 min 20 s, 2.26 ms, 22.5 GB, 97.70 %, 51.20 %");
  EXPECT_EQ(Phrase("{processor_joules}|{samples_per_second}|{updates}|{train_loss}|{reason}", facts),
            "1,234 J, 1,920, 4,800, 0.1831, SIGINT");
}

TEST(PhraseTest, NounsAreSingularForOne) {
  EXPECT_EQ(Phrase("{a:server}|{b:worker}", {{"a", 1}, {"b", 2}}), "1 server, 2 workers");
}

TEST(PhraseTest, PartsThatAreUnknownAreLeftOut) {
  const Json facts = {{"a", 1}, {"b", nullptr}, {"text", ""}, {"list", Json::array()}, {"zero", 0}};
  EXPECT_EQ(Phrase("one {a}|{a} of {b}|{text}|{list}|{missing}|; and {zero}|at last", facts),
            "one 1; and 0, at last");
  EXPECT_EQ(Phrase("{b}|without a measure", facts), "") << "nothing precedes it";
  EXPECT_EQ(Phrase("{a} late|{zero} duplicate", facts, /*zeros=*/false), "1 late");
}

TEST(PhraseTest, RowsOfZerosMayBeLeftOut) {
  const PhraseRow row = {"recovered", "{a:time}|{b:update}", true};
  EXPECT_EQ(Phrase(row, {{"a", 0}, {"b", 0}}), "");
  EXPECT_EQ(Phrase(row, {{"a", 0}, {"b", 2}}), "0 times, 2 updates");
}

// The tables of the status and of a summary name what their objects have.
TEST(PhraseTest, RowsNameMeasures) {
  const auto check = [](absl::Span<const PhraseRow> rows, unsigned in, std::set<std::string> known) {
    for (const Measure<JobReading>& measure : JobMeasures())
      if ((measure.in & in) != 0) known.insert(measure.key);
    for (const PhraseRow& row : rows) {
      const std::vector<std::string> pieces = absl::StrSplit(row.phrase, '{');
      for (size_t i = 1; i < pieces.size(); ++i)
        EXPECT_EQ(known.count(pieces[i].substr(0, pieces[i].find_first_of(":}"))), 1u) << pieces[i];
    }
  };
  check(StatusRows(), kInStatus, {"quorum_ends", "in_memory", "loader_threads", "checkpoint", "security"});
  check(ResultRows(), kInSummary, {"outcome"});
  check(SummaryRows(), kInSummary, {"outcome", "time_split"});
}

}  // namespace
}  // namespace catchment
