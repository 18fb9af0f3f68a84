#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/control/data_ledger.h"
#include "server/control/lease_ledger.h"
#include "server/control/plan_ledger.h"
#include "server/control/sample_source.h"

namespace catchment {
namespace {

absl::Status Damaged(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint's manifest is damaged: ", what, "; resume from another checkpoint"));
}

}  // namespace

std::string DescribeProblem(std::vector<Span> spans, uint64_t train_samples, const Position& next) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return Position{a.epoch, a.begin} < Position{b.epoch, b.begin};
  });
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (span.begin >= span.end || span.end > train_samples || Position{span.epoch, span.end - 1} >= next)
      return absl::StrCat("pending samples ", span.begin, " to ", span.end, " of epoch ", span.epoch);
    if (i > 0 && spans[i - 1].epoch == span.epoch && spans[i - 1].end > span.begin)
      return absl::StrCat("sample ", span.begin, " of epoch ", span.epoch, " is pending twice");
  }
  return "";
}

absl::Status CheckMasterState(const v1::MasterState& state) {
  if (state.train_samples() == 0) {
    if (state.pending_size() == 0 && state.next_epoch() == 0 && state.next_position() == 0)
      return absl::OkStatus();
    return Damaged("samples of an empty data set are assigned");
  }
  if (state.next_position() >= state.train_samples()) {
    return Damaged(
        absl::StrCat("next_position ", state.next_position(), " of ", state.train_samples(), " samples"));
  }
  std::vector<Span> spans;
  for (const v1::SampleSpan& span : state.pending()) spans.push_back(FromProto(span));
  const std::string problem =
      DescribeProblem(std::move(spans), state.train_samples(), {state.next_epoch(), state.next_position()});
  return problem.empty() ? absl::OkStatus() : Damaged(problem);
}

std::unique_ptr<DataLedger> MakeDataLedger(const v1::Job& job, uint64_t train_samples,
                                           const v1::MasterState& from) {
  const Pace pace = PaceOf(job);
  const Budget budget = BudgetOf(job, train_samples);
  const uint64_t samples_per_epoch = SamplesPerEpoch(job, train_samples);
  if (pace.synchronous) return std::make_unique<PlanLedger>(pace, budget, samples_per_epoch, from);
  return std::make_unique<LeaseLedger>(pace, budget, samples_per_epoch, from);
}

}  // namespace catchment
