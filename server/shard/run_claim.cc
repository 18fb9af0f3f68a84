#include "server/shard/run_claim.h"

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace catchment {

std::string Describe(const v1::Run& run) {
  return absl::StrCat("run ", FormatId(run.id()), " of job '", run.job(), "' (master at ", run.master(), ")");
}

v1::Run RunClaim::run() const {
  MutexLock lock(&mu_);
  return run_;
}

absl::Status RunClaim::CheckUnclaimed(const v1::Run& run) const {
  if (run.id() == 0)
    return absl::FailedPreconditionError("the command does not name the run that it belongs to");
  if (run_.id() == 0 || run_.id() == run.id()) return absl::OkStatus();
  const char* const advice =
      run_.master() == run.master() ? ": restart the server" : ": give each job servers of its own";
  return absl::FailedPreconditionError(
      absl::StrCat("this server belongs to ", Describe(run_), ", and refuses ", Describe(run), advice));
}

absl::Status RunClaim::Claim(const v1::Run& run) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckUnclaimed(run));
  run_ = run;
  return absl::OkStatus();
}

absl::Status RunClaim::Admit(const v1::ShardCommand& command) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckUnclaimed(command.run()));
  if (command.server_instance() != server_instance_) {
    return absl::NotFoundError(absl::StrCat("the command is for server process ",
                                            FormatId(command.server_instance()), ", and this is ",
                                            FormatId(server_instance_), ": the server was restarted"));
  }
  run_ = command.run();
  return absl::OkStatus();
}

absl::Status RunClaim::Check(uint64_t run_id, absl::string_view peer) const {
  MutexLock lock(&mu_);
  if (run_id != 0 && run_id == run_.id()) return absl::OkStatus();
  const std::string mine = run_.id() == 0 ? "no run yet: it started after the run had begun" : Describe(run_);
  return absl::AbortedError(absl::StrCat(peer, " belongs to run ", FormatId(run_id), ", and this server to ",
                                         mine, "; ask the master for the job, and register again"));
}

}  // namespace catchment
