// The metrics of a daemon at http://HOST:PORT/metrics, in the format that Prometheus reads.
#ifndef CATCHMENT_COMMON_METRICS_ENDPOINT_H_
#define CATCHMENT_COMMON_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/metrics/families.h"

namespace catchment {

class MetricsEndpoint {
 public:
  // Appends the families of what the daemon does at the moment.
  using Source = std::function<void(MetricFamilies* families)>;

  // Returns the address of --metrics_port, PORT or HOST:PORT; without HOST it is the loopback interface.
  static absl::StatusOr<std::string> ParseAddress(const std::string& text);

  // Serves the metrics of the process, and of a Source, until it is destroyed. "": serves nothing. `program`
  // is the daemon's name. Returns an endpoint that serves nothing, and logs why, if it cannot listen:
  // training does not depend on it.
  MetricsEndpoint(const std::string& address, const std::string& program);
  ~MetricsEndpoint();

  // Sets the source, which other threads call, one at a time, until it is replaced. Null: none. Threads: any.
  void SetSource(Source source);

  // Returns HOST:PORT; empty if nothing is served.
  const std::string& address() const { return address_; }

 private:
  class Page;
  class Server;

  std::unique_ptr<Page> page_;
  std::unique_ptr<Server> server_;  // null: nothing is served
  std::string address_;
};

// Sets the source of an endpoint while it exists.
class MetricsSource {
 public:
  MetricsSource(MetricsEndpoint* endpoint, MetricsEndpoint::Source source) : endpoint_(endpoint) {
    endpoint_->SetSource(std::move(source));
  }
  MetricsSource(const MetricsSource&) = delete;
  MetricsSource& operator=(const MetricsSource&) = delete;
  ~MetricsSource() { endpoint_->SetSource(nullptr); }

 private:
  MetricsEndpoint* const endpoint_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_METRICS_ENDPOINT_H_
