#include "server/control/evaluations.h"

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

v1::EvaluationsImage Evaluations::Save() const {
  v1::EvaluationsImage image;
  image.set_due(due_);
  image.set_done(done_);
  image.set_given(given_);
  image.set_final(final_);
  image.set_given_samples(given_moment_.samples);
  image.set_given_seconds(given_moment_.seconds);
  v1::EvaluationReport* const last = image.mutable_last();
  last->set_incarnation(last_.incarnation());
  last->set_evaluation(last_.evaluation());
  last->set_samples(last_.samples());
  last->set_correct(last_.correct());
  last->set_loss_sum(last_.loss_sum());
  image.set_last_samples(last_moment_.samples);
  image.set_last_seconds(last_moment_.seconds);
  return image;
}

void Evaluations::Restore(const v1::EvaluationsImage& image) {
  due_ = image.due();
  done_ = image.done();
  given_ = image.given();
  final_ = image.final();
  given_moment_ = {image.given_samples(), image.given_seconds()};
  last_ = image.last();
  last_moment_ = {image.last_samples(), image.last_seconds()};
}

}  // namespace catchment
