#include <netinet/in.h>
#include <prometheus/check_names.h>
#include <sys/socket.h>

#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/metrics/endpoint.h"
#include "common/metrics/families.h"
#include "common/net/listen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

v1::JobStatus FullStatus() {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_phase(v1::JobStatus::TRAINING);
  status.set_samples(12'800);
  status.set_updates(200);
  status.set_has_accuracy(true);
  status.set_test_samples(10'000);
  status.set_test_accuracy(0.97);
  status.set_compute_seconds(3);
  status.set_push_seconds(1);
  status.set_round_trip_p50_us(500);
  status.set_round_trip_p99_us(2'000);
  status.set_pushes_applied(190);
  status.set_pushes_late(10);
  v1::WorkerStatistics* worker = status.add_shards()->add_workers();
  for (const auto& [value, count] : std::map<uint64_t, uint64_t>{{0, 50}, {1, 100}, {3, 30}, {5000, 20}}) {
    worker->add_staleness_values(value);
    worker->add_staleness_counts(count);
  }
  v1::QuorumStatistics* quorum = status.mutable_shards(0)->mutable_quorum();
  quorum->set_by_all(6);
  quorum->set_by_grace(3);
  quorum->set_by_loss(1);
  quorum->set_grace_seconds(2.5);
  quorum->add_merged_values(2);
  quorum->add_merged_counts(10);
  status.set_pushes_split(3);
  for (uint32_t i : {0, 1}) {
    v1::WorkerStatus* member = status.add_workers();
    member->set_worker(i);
    member->set_host("node" + std::to_string(i));
    member->mutable_progress()->set_samples(6'400);
  }
  v1::ProgramMetric* metric = status.add_program_metrics();
  metric->set_name("catchment_samples_total");  // a user may call it so
  metric->set_sum(2);
  metric->set_count(4);
  return status;
}

MetricFamilies AllFamilies() {
  MetricFamilies families;
  AddJob(FullStatus(), &families);
  AddShard(v1::ShardReport(), &families);
  AddWorker(v1::Progress(), &families);
  AddProcess(&families);
  return families;
}

const MetricFamily& Family(const MetricFamilies& families, const std::string& name) {
  for (const MetricFamily& family : families) {
    if (family.name == name) return family;
  }
  ADD_FAILURE() << "there is no " << name;
  static const auto* const none = new MetricFamily{.metric = {ClientMetric()}};
  return *none;
}

TEST(MetricsTest, NamesAreThoseOfPrometheusAndDoNotClash) {
  std::set<std::string> names;
  for (const MetricFamily& family : AllFamilies()) {
    EXPECT_TRUE(prometheus::CheckMetricName(family.name)) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " is there twice";
    EXPECT_EQ(family.type == MetricType::Counter, absl::EndsWith(family.name, "_total")) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    std::set<std::vector<ClientMetric::Label>> labels;
    for (const ClientMetric& metric : family.metric) {
      EXPECT_TRUE(labels.insert(metric.label).second) << family.name << " has a value twice";
      for (const ClientMetric::Label& label : metric.label)
        EXPECT_TRUE(prometheus::CheckLabelName(label.name)) << label.name;
    }
  }
}

TEST(MetricsTest, ValuesAreThoseOfTheStatus) {
  const MetricFamilies families = AllFamilies();
  EXPECT_EQ(Family(families, "catchment_samples_total").metric[0].counter.value, 12'800);
  EXPECT_EQ(Family(families, "catchment_test_accuracy_ratio").metric[0].gauge.value, 0.97);
  const MetricFamily& phases = Family(families, "catchment_phase_seconds_total");
  ASSERT_EQ(phases.metric.size(), 4u);
  EXPECT_EQ(phases.metric[0].counter.value, 3);
  EXPECT_EQ(Family(families, "catchment_round_trip_seconds").metric[1].gauge.value, 0.002);
  const MetricFamily& members = Family(families, "catchment_member_samples_total");
  ASSERT_EQ(members.metric.size(), 2u);
  EXPECT_EQ(members.metric[1].label[1].value, "node1");
}

TEST(MetricsTest, StalenessIsAHistogramOfUpdates) {
  const MetricFamilies families = AllFamilies();
  const ClientMetric::Histogram& histogram =
      Family(families, "catchment_staleness_updates").metric[0].histogram;
  EXPECT_EQ(histogram.sample_count, 200u);
  EXPECT_EQ(histogram.sample_sum, 100 + 3 * 30 + 5000 * 20);
  std::vector<uint64_t> cumulative;
  for (const ClientMetric::Bucket& bucket : histogram.bucket) cumulative.push_back(bucket.cumulative_count);
  // At most 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, and any.
  EXPECT_THAT(cumulative, ElementsAre(50, 150, 150, 180, 180, 180, 180, 180, 180, 180, 180, 180, 200));
}

TEST(MetricsTest, UpdatesOfQuorumsAreCountedByWhatEndedTheWait) {
  const MetricFamilies families = AllFamilies();
  const MetricFamily& updates = Family(families, "catchment_quorum_updates_total");
  ASSERT_EQ(updates.metric.size(), 3u);
  EXPECT_EQ(updates.metric[1].counter.value, 3);
  EXPECT_EQ(updates.metric[1].label[0].value, "grace");
  EXPECT_EQ(Family(families, "catchment_quorum_grace_seconds_total").metric[0].counter.value, 2.5);
  EXPECT_EQ(Family(families, "catchment_quorum_contributions").metric[0].histogram.sample_sum, 20);
  EXPECT_EQ(Family(families, "catchment_pushes_split_total").metric[0].counter.value, 3);
  v1::JobStatus status = FullStatus();
  status.mutable_shards(0)->clear_quorum();
  MetricFamilies without;
  AddJob(status, &without);
  for (const MetricFamily& family : without)
    EXPECT_FALSE(absl::StrContains(family.name, "quorum")) << family.name;
}

TEST(MetricsTest, ScoresAreThereOnceThereIsOne) {
  v1::JobStatus status = FullStatus();
  status.set_test_samples(0);
  MetricFamilies families;
  AddJob(status, &families);
  for (const MetricFamily& family : families)
    EXPECT_FALSE(absl::StrContains(family.name, "test_")) << family.name;
}

TEST(MetricsEndpointTest, AddressesAreOfThisMachineUnlessOneIsGiven) {
  EXPECT_EQ(*MetricsEndpoint::ParseAddress("9100"), "127.0.0.1:9100");
  EXPECT_EQ(*MetricsEndpoint::ParseAddress("0.0.0.0:9100"), "0.0.0.0:9100");
  for (const char* wrong : {"", "nine", ":9100", "1.2.3.4:", "70000", "-1"})
    EXPECT_FALSE(MetricsEndpoint::ParseAddress(wrong).ok()) << wrong;
}

TEST(MetricsEndpointTest, DaemonsGoOnWithoutMetricsIfThePortIsTaken) {
  const MetricsEndpoint first("127.0.0.1:0", "test");
  ASSERT_FALSE(first.address().empty());
  MetricsEndpoint second(first.address(), "test");
  EXPECT_TRUE(second.address().empty());
  second.SetSource([](MetricFamilies*) { FAIL(); });
}

// Returns a connection to the endpoint.
Fd Dial(const MetricsEndpoint& endpoint) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(endpoint.address().substr(endpoint.address().rfind(':') + 1), &port));
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// Returns what is answered until the connection ends.
std::string Ask(const Fd& fd, const std::string& request) {
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  std::string answer;
  char bytes[4096];
  for (ssize_t size; (size = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) answer.append(bytes, size);
  return answer;
}

TEST(MetricsEndpointTest, OnlyTheMetricsAreServed) {
  const MetricsEndpoint endpoint("127.0.0.1:0", "test");
  const auto answer = [&](const std::string& first_line) {
    return Ask(Dial(endpoint), first_line + "\r\nHost: localhost\r\n\r\n");
  };
  for (const char* line : {"GET /metrics HTTP/1.1", "GET /metrics?x=1 HTTP/1.0"}) {
    EXPECT_THAT(answer(line), StartsWith("HTTP/1.1 200 OK\r\n")) << line;
    EXPECT_THAT(answer(line), HasSubstr("catchment_build_info{program=\"test\"")) << line;
  }
  for (const char* line : {"GET / HTTP/1.1", "POST /metrics HTTP/1.1", "GET /metrics/../x HTTP/1.1", "x"})
    EXPECT_THAT(answer(line), StartsWith("HTTP/1.1 404 Not Found\r\n")) << line;
  EXPECT_EQ(Ask(Dial(endpoint), std::string(1 << 16, 'x')), "");
}

// They stay open, and more come than the endpoint keeps.
TEST(MetricsEndpointTest, SilentAndSlowConnectionsDoNotKeepOthersWaiting) {
  const MetricsEndpoint endpoint("127.0.0.1:0", "test");
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  std::vector<Fd> silent;
  for (size_t i = 0; i < 400; ++i) {
    silent.push_back(Dial(endpoint));
    send(silent.back().get(), request.data(), i % request.size(), MSG_NOSIGNAL);
    if (i % 40 != 0) continue;
    EXPECT_THAT(Ask(Dial(endpoint), request), HasSubstr("catchment_build_info")) << i;
  }
  EXPECT_THAT(Ask(Dial(endpoint), request), HasSubstr("catchment_build_info"));
  // A request may come in pieces.
  const Fd slow = Dial(endpoint);
  for (const char byte : request.substr(0, request.size() - 1)) EXPECT_EQ(send(slow.get(), &byte, 1, 0), 1);
  EXPECT_THAT(Ask(slow, "\n"), HasSubstr("catchment_build_info"));
}

}  // namespace
}  // namespace catchment
