#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "worker/attach/attached_model.h"
#include "worker/attach/descriptor_offer.h"

namespace catchment {
namespace {

// The time for a program to end after its socket is closed.
constexpr double kDeathSeconds = 1;
constexpr char kMustEvaluate[] =
    ". The job gave it weights to score, because it gives join() a test set: if worker.evaluates is true, "
    "it must call worker.evaluate()";
constexpr char kMustLeave[] =
    ". A loop that ends before the job, as by break, must call worker.leave(), and others train the rest";

// Says why a program is not to be waited for.
class ProgramWatch {
 public:
  ProgramWatch(std::function<bool()> stopped, bool evaluates)
      : stopped_(std::move(stopped)), evaluates_(evaluates) {}

  void SetChild(ChildProgram* child) { child_ = child; }
  // `offer` serves while the program has not joined.
  void SetOffer(std::unique_ptr<DescriptorOffer> offer) { offer_ = std::move(offer); }
  // Lets the program finish its step when the worker is asked to stop later.
  void SetJoined() {
    joined_ = true;
    offer_.reset();
  }

  std::optional<double> StoppedFor() {
    if (!stopped_()) return std::nullopt;
    if (!stopped_at_) stopped_at_ = clock_.Now();
    return clock_.Now() - *stopped_at_;
  }

  absl::Status Look(bool closed) {
    if (offer_ != nullptr) offer_->Serve();
    const std::optional<std::string> end = closed ? child_->WaitFor(kDeathSeconds) : child_->Poll();
    if (end.has_value()) {
      return absl::InternalError(absl::StrCat(
          "the program (pid ", child_->pid(), ") ended ",
          joined_ ? "before the job was over: " : "without calling catchment.join(): ", *end,
          "; its output is above, in the worker's log",
          joined_ && *end == ChildProgram::kInOrder ? (evaluates_ ? kMustEvaluate : kMustLeave) : ""));
    }
    const std::optional<double> stopped = StoppedFor();
    if (!stopped || (joined_ && *stopped < AttachedModel::kStopSeconds)) return absl::OkStatus();
    return absl::CancelledError("the worker was asked to stop");
  }

 private:
  const SteadyClock clock_;
  const std::function<bool()> stopped_;
  const bool evaluates_;
  ChildProgram* child_ = nullptr;
  std::unique_ptr<DescriptorOffer> offer_;
  bool joined_ = false;
  std::optional<double> stopped_at_;  // when it was noticed
};

int64_t BytesOf(const std::vector<TensorSpec>& tensors) {
  int64_t values = 0;
  for (const TensorSpec& tensor : tensors) values += tensor.size();
  return values * static_cast<int64_t>(sizeof(float));
}

// *theirs: the program's end of the socket, which is the caller's to close.
absl::StatusOr<ProgramChannels> MakeChannels(const AttachedModel::Options& options, ProgramLink::Look look,
                                             int* theirs) {
  const int64_t bytes = BytesOf(options.tensors);
  ASSIGN_OR_RETURN(SharedMemory weights, SharedMemory::Create("weights", bytes, WithoutMemfd::kUseFile));
  ASSIGN_OR_RETURN(SharedMemory gradient, SharedMemory::Create("gradient", bytes, WithoutMemfd::kUseFile));
  ASSIGN_OR_RETURN(PlanBoard plan, PlanBoard::Create(options.largest_minibatch));
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ErrnoToStatus(errno, "cannot create a socket to the program");
  }
  *theirs = fds[1];
  return ProgramChannels{std::make_unique<ProgramLink>(fds[0], std::move(look)), std::move(weights),
                         std::move(gradient), std::move(plan)};
}

ChildProgram::Options ChildOptions(const ProgramOptions& program, const std::vector<int>& fds,
                                   const std::string& address) {
  ChildProgram::Options options = {
      .command = program.command,
      .environment = {absl::StrCat("CATCHMENT_ATTACH=", fds[0], ",", fds[1], ",", fds[2], ",", fds[3]),
                      absl::StrCat("CATCHMENT_ATTACH_ADDRESS=", address),
                      absl::StrCat("CATCHMENT_LOCAL_INDEX=", program.local_index)},
      .fds = fds};
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    options.environment.push_back(absl::StrCat("OMP_NUM_THREADS=", program.threads));
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachedModel>> StartAttachedModel(const ProgramOptions& program,
                                                                  AttachedModel::Options options,
                                                                  std::function<bool()> stopped) {
  const auto watch = std::make_shared<ProgramWatch>(std::move(stopped), options.evaluates);
  int theirs = -1;
  ASSIGN_OR_RETURN(ProgramChannels channels,
                   MakeChannels(
                       options, [watch](bool closed) { return watch->Look(closed); }, &theirs));
  const std::vector<int> fds = {theirs, channels.weights.fd(), channels.gradient.fd(), channels.plan.fd()};
  ASSIGN_OR_RETURN(std::unique_ptr<DescriptorOffer> offer, DescriptorOffer::Create(fds));
  ASSIGN_OR_RETURN(std::unique_ptr<ChildProgram> child,
                   ChildProgram::Start(ChildOptions(program, fds, offer->address())));
  LOG(INFO) << "started the program (pid " << child->pid() << "): " << program.command;
  watch->SetChild(child.get());
  watch->SetOffer(std::move(offer));
  channels.on_hello = [watch] { watch->SetJoined(); };
  channels.stopped_for = [watch] { return watch->StoppedFor(); };
  return std::make_unique<AttachedModel>(std::move(options), std::move(channels), std::move(child));
}

}  // namespace catchment
