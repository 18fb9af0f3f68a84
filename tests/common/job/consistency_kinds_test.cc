#include "common/job/consistency_kinds.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

// Returns a job of 6 workers with this consistency, whose contribution all kinds accept.
v1::Job JobWith(const std::string& consistency) {
  v1::Job job;
  const absl::Status status = ApplyOverrides({"model.synthetic.parameters=1000", "data.synthetic.samples=64",
                                              "workers=6", "algorithm.contribution.pseudo_gradient={}",
                                              absl::StrCat("algorithm.consistency={", consistency, "}")},
                                             &job);
  EXPECT_TRUE(status.ok()) << status;
  const absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
  EXPECT_TRUE(filled.ok()) << consistency << ": " << filled.status();
  return filled.value_or(v1::Job());
}

TEST(ConsistencyKindsTest, EveryKindOfAJobFileHasOneEntry) {
  const auto* const kinds = v1::Consistency::descriptor()->FindOneofByName("kind");
  EXPECT_EQ(static_cast<int>(ConsistencyKinds().size()), kinds->field_count());
  std::set<std::string> descriptions;
  for (int i = 0; i < kinds->field_count(); ++i) {
    const std::string name = kinds->field(i)->name();
    const v1::Job job = JobWith(name + ":{}");
    const v1::Consistency& consistency = job.algorithm().consistency();
    ASSERT_EQ(KindName(consistency), name);
    EXPECT_EQ(KindOf(consistency).kind, consistency.kind_case()) << name;
    EXPECT_TRUE(descriptions.insert(KindOf(consistency).describe(job)).second) << name;
    const absl::StatusOr<v1::Job> again = FillDefaultsAndValidate(job);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(JobText(*again), JobText(job));
  }
  EXPECT_EQ(KindOf(v1::Consistency()).kind, v1::Consistency::kAsynchronous);
}

struct Facts {
  const char* consistency;
  uint32_t groups = 0;
  uint32_t backup_workers = 0;
  std::optional<uint32_t> buffered;
  std::optional<uint32_t> staleness_bound;
  bool has_staleness = true;
};

TEST(ConsistencyKindsTest, FactsFollowFromTheFields) {
  for (const Facts& facts :
       {Facts{.consistency = "asynchronous:{}"}, Facts{.consistency = "asynchronous:{emulated_delay:3}"},
        Facts{.consistency = "asynchronous:{staleness_limit:2}"},
        Facts{.consistency = "synchronous:{}", .groups = 1, .has_staleness = false},
        Facts{.consistency = "synchronous:{backup_workers:2}",
        .groups = 1,
        .backup_workers = 2,
        .has_staleness = false},
        Facts{.consistency = "grouped:{}", .groups = 2},
        Facts{.consistency = "grouped:{groups:3 backup_workers:1}", .groups = 3, .backup_workers = 1},
        Facts{.consistency = "n_softsync:{}", .buffered = 6},
        Facts{.consistency = "n_softsync:{n:4}", .buffered = 1},
        Facts{.consistency = "n_softsync:{n:2}", .buffered = 3},
        Facts{.consistency = "n_softsync:{size:4}", .buffered = 4},
        Facts{.consistency = "n_softsync:{size:7}", .buffered = 6},
        Facts{.consistency = "bounded_staleness:{}", .staleness_bound = 3},
        Facts{.consistency = "bounded_staleness:{bound:0}", .staleness_bound = 0},
        Facts{.consistency = "quorum:{minimum:2}", .groups = 1, .has_staleness = false}}) {
    SCOPED_TRACE(facts.consistency);
    const v1::Job job = JobWith(facts.consistency);
    const v1::Consistency& consistency = job.algorithm().consistency();
    EXPECT_EQ(NumGroups(consistency), facts.groups);
    EXPECT_EQ(BackupWorkers(consistency), facts.backup_workers);
    EXPECT_EQ(IsBuffered(consistency), facts.buffered.has_value());
    EXPECT_EQ(BufferedContributions(consistency, 6), facts.buffered.value_or(1));
    EXPECT_EQ(BufferedContributions(consistency, 0), 1u) << "the last worker may leave contributions";
    EXPECT_EQ(StalenessBound(consistency), facts.staleness_bound);
    EXPECT_EQ(KindOf(consistency).has_staleness, facts.has_staleness);
    EXPECT_EQ(PaceOf(job).contributions, facts.groups > 0 ? 6 : facts.buffered.value_or(1));
    EXPECT_EQ(PaceOf(job).updates, std::max(1u, facts.groups));
  }
}

// Each refusal names a field of the kind itself.
TEST(ConsistencyKindsTest, ProblemsAreOfTheKindsOwnFields) {
  for (const std::string wrong :
       {"asynchronous.emulated_delay=10001", "asynchronous.staleness_limit=0", "synchronous.backup_workers=6",
        "grouped.groups=1", "grouped.groups=7", "n_softsync.size=0", "n_softsync.n=7", "quorum.minimum=7"}) {
    v1::Job job = JobWith("");
    ASSERT_TRUE(ApplyOverrides({"algorithm.consistency." + wrong}, &job).ok()) << wrong;
    const std::string path = "algorithm.consistency." + wrong.substr(0, wrong.find('='));
    const std::string problems(FillDefaultsAndValidate(job).status().message());
    EXPECT_TRUE(absl::StartsWith(problems, path + ": is ")) << problems;
    EXPECT_FALSE(absl::StrContains(problems, '\n')) << problems;
  }
}

}  // namespace
}  // namespace catchment
