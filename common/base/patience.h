// Decides when to give up a peer that does not answer.
//
// Patience is spent by attempts and by the pauses between them. A step of either kind spends at most the time
// that it was to end within, and at most half of the patience: in the rest of a longer one this process did
// not run (SIGSTOP, a machine that stood still), so that the silence was its own. A peer is given up only
// after two attempts in a row have failed.
//
//   Patience patience(60);
//   while (true) {
//     patience.Begin(clock.Now(), kCallSeconds);
//     if (Call().ok()) return;
//     if (patience.Fail(clock.Now())) return GiveUp();
//     patience.Begin(clock.Now(), kPauseSeconds);
//     Pause(kPauseSeconds);
//   }
#ifndef CATCHMENT_COMMON_BASE_PATIENCE_H_
#define CATCHMENT_COMMON_BASE_PATIENCE_H_

#include <algorithm>
#include <limits>

namespace catchment {

// Units: seconds, on any clock that never goes back. Threads: not thread-safe.
class Patience {
 public:
  explicit Patience(double seconds) : seconds_(seconds) {}

  // Notes at `now` that an attempt, or the pause before the next one, begins; it should end within `limit`.
  void Begin(double now, double limit = std::numeric_limits<double>::infinity()) {
    Spend(now);
    begun_at_ = now;
    limit_ = limit;
  }
  // Notes at `now` that the attempt has failed. Returns true if the peer is to be given up.
  bool Fail(double now) {
    Spend(now);
    ++failures_;
    return failures_ >= kAttempts && spent_ >= seconds_;
  }
  // Notes that the peer has answered.
  void Succeed() {
    limit_ = 0;
    spent_ = 0;
    failures_ = 0;
  }

  double seconds() const { return seconds_; }
  void ShortenTo(double seconds) { seconds_ = std::min(seconds_, seconds); }

 private:
  static constexpr int kAttempts = 2;

  void Spend(double now) {
    spent_ += std::min({now - begun_at_, limit_, seconds_ / kAttempts});
    limit_ = 0;
  }

  double seconds_;
  double begun_at_ = 0;
  double limit_ = 0;  // of the step that has begun; 0: none has
  double spent_ = 0;  // since the last answer
  int failures_ = 0;  // since the last answer
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_PATIENCE_H_
