// State shared by workers and evaluators: the job received from the master, the data and the model.
#ifndef CATCHMENT_WORKER_LOOP_SESSION_H_
#define CATCHMENT_WORKER_LOOP_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/master.pb.h"
#include "worker/attach/attached_model.h"
#include "worker/data/dataset.h"
#include "worker/data/stage.h"
#include "worker/loop/master_client.h"
#include "worker/model/trainable.h"

namespace catchment {

struct WorkerOptions {
  std::string master;     // HOST:PORT
  std::string directory;  // the --out of its run; "": any run at the address is meant
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string device;   // "": the job's
  int local_index = 0;  // among this machine's workers
  int threads = 1;
  double connect_timeout_seconds = 60;
  std::string program;         // that computes the gradients of a job with model.external; "": none
  bool shared_memory = true;   // with servers on this machine, if the job allows it
  std::string stage;           // a directory of this machine for copies of the data; "": none
  v1::Role role = v1::WORKER;  // what the program is to do
};

// The model and the residual are used by one thread; the other members are immutable.
struct Session {
  uint64_t run_id = 0;  // of the master's run
  v1::Job job;
  std::vector<std::string> servers;
  std::unique_ptr<Stage> stage;  // copies of files of the data; null: there are none
  DataSets data;
  std::unique_ptr<Trainable> model;
  ParameterLayout layout;
  AttachedModel* attached = nullptr;  // the model where it is a program's, otherwise null
  // The residual of error feedback, kept from one registration of the worker to the next
  // (ParameterClient::TakeResidual); empty: nothing is kept.
  std::vector<float> residual;
  // The highest version of a block that the last registration has seen; 0: none.
  uint64_t version = 0;
  uint64_t data_checksum = 0;  // DataChecksum
};

// Asks the master for the job, loads its data, makes the model on the device. FailedPrecondition when the
// master speaks another protocol version, or the job has fields that this build does not know. HasMasterEnded
// when the job has ended.
absl::StatusOr<Session> OpenSession(const WorkerOptions& options, MasterClient* master);

// Follows the master into its current run, after a registration that was lost for the reason `lost`. In
// another run of the same job, `session` keeps its data and model, and takes the servers of the run; for
// another job it is opened anew. Logs `lost`, or that there is another run.
absl::Status FollowMaster(const WorkerOptions& options, const absl::Status& lost, MasterClient* master,
                          absl::StatusOr<Session>* session);

// Returns true for the error of a call that failed because the master has ended in order, as it does at the
// end of the job, or says that the job has ended. The caller was not asked to stop.
inline bool HasMasterEnded(const absl::Status& error) { return absl::IsCancelled(error); }

// Returns the request with which a session registers in this role.
v1::RegisterRequest MakeRegisterRequest(const Session& session, v1::Role role);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_SESSION_H_
