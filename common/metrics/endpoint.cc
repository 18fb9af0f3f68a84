#include "common/metrics/endpoint.h"

#include <glog/logging.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/version.h"

namespace catchment {

class MetricsEndpoint::Page final : public prometheus::Collectable {
 public:
  explicit Page(std::string program) : program_(std::move(program)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    MetricFamilies families;
    AddGauge("catchment_build_info", "The program and its version.", 1, &families,
             {{"program", program_}, {"version", BuildVersion()}});
    AddProcess(&families);
    MutexLock lock(&mu_);
    if (source_) source_(&families);
    return families;
  }

  void Set(Source source) {
    MutexLock lock(&mu_);
    source_ = std::move(source);
  }

 private:
  const std::string program_;
  mutable Mutex mu_;
  Source source_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::string> MetricsEndpoint::ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  int number = 0;
  if (host.empty() || !absl::SimpleAtoi(port, &number) || number < 0 || number > 65535) {
    return absl::InvalidArgumentError(
        "must be PORT, for this machine only, or HOST:PORT, such as 0.0.0.0:9100 for all interfaces");
  }
  return absl::StrCat(host, ":", number);
}

MetricsEndpoint::MetricsEndpoint(const std::string& address, const std::string& program)
    : page_(std::make_shared<Page>(program)) {
  if (address.empty()) return;
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
    exposer_->RegisterCollectable(page_);
    const std::vector<int> ports = exposer_->GetListeningPorts();
    address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", ports.empty() ? 0 : ports[0]);
    LOG(INFO) << "metrics are at http://" << address_ << "/metrics";
  } catch (const std::exception&) {
    exposer_.reset();
    LOG(ERROR)
        << "cannot serve metrics at " << address
        << ": is the port in use, or the address not of this machine? The daemon continues without metrics";
  }
}

MetricsEndpoint::~MetricsEndpoint() = default;

void MetricsEndpoint::SetSource(Source source) { page_->Set(std::move(source)); }

}  // namespace catchment
