// Simulated runs for programs: requests and answers in JSON, as docs/doors.md describes them.
#ifndef CATCHMENT_CLI_SIMULATE_SIMULATE_DOOR_H_
#define CATCHMENT_CLI_SIMULATE_SIMULATE_DOOR_H_

#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

namespace catchment {

// Carries out one request, which is one object, and returns its answer. Errors are answers, too.
nlohmann::ordered_json AnswerSimulation(const std::string& request);

// Answers each line of `in` with a line, until its end. Returns the exit code.
int ServeSimulations(std::istream* in, std::ostream* out);

}  // namespace catchment

#endif  // CATCHMENT_CLI_SIMULATE_SIMULATE_DOOR_H_
