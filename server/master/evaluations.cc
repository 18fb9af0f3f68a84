#include "server/master/evaluations.h"

#include <algorithm>
#include <cmath>

namespace catchment {

Evaluations::Evaluations(double every_epochs, uint64_t next)
    : every_epochs_(every_epochs), done_(next > 0 ? next - 1 : 0) {}

void Evaluations::Observe(double epochs) {
  if (every_epochs_ <= 0 || final_ > 0) return;
  // A fraction such as 0.1 is not exact; the tolerance makes evaluation 3 due at 0.3 epochs, not a sample
  // later.
  due_ = std::max(due_, static_cast<uint64_t>(std::floor(epochs / every_epochs_ + 1e-6)));
}

void Evaluations::DemandFinal() {
  if (final_ > 0) return;
  // An evaluation that an evaluator may be working on has older weights, so its number is not reused.
  final_ = std::max(due_, std::max(done_, given_) + 1);
  due_ = final_;
}

v1::GetEvaluationReply Evaluations::Current(const Moment& now) {
  v1::GetEvaluationReply reply;
  if (due_ <= done_) return reply;
  given_ = std::max(given_, due_);
  given_moment_ = now;
  reply.set_evaluation(due_);
  reply.set_final(due_ == final_);
  return reply;
}

bool Evaluations::Report(const v1::EvaluationReport& report) {
  if (report.evaluation() <= done_ || report.evaluation() > given_) return false;
  done_ = report.evaluation();
  if (report.samples() == 0) return false;
  last_ = report;
  last_moment_ = given_moment_;
  return true;
}

}  // namespace catchment
