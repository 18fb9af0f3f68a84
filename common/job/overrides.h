// Changes to a message from the command line: "optimizer.learning_rate=0.05", "device=CPU".
//
// PATH=VALUE. The path has the names of the job file, and an item of a list its index, from 0:
// "model.layers[5].dropout.rate". Values are
//   numbers and texts as they are, without quotes;
//   names of enums and true/false, in any case;
//   a message's fields in braces, which replace the whole message: "data.drawn_digits={train_samples: 1000}".
// A member of a oneof takes the place of another: setting "updates" ends "epochs". But an item of a list
// keeps its kind unless its message is given as a whole: "model.layers[5].dropout.rate=0" is refused when
// layer 5 is a dense layer.
#ifndef CATCHMENT_COMMON_JOB_OVERRIDES_H_
#define CATCHMENT_COMMON_JOB_OVERRIDES_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace catchment {

// In order, so that a later one wins. InvalidArgument with all that is wrong, a line each; *message is then
// of no use.
absl::Status ApplyOverrides(const std::vector<std::string>& overrides, google::protobuf::Message* message);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_OVERRIDES_H_
