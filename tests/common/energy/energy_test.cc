#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/energy/account.h"
#include "common/energy/meter.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

std::optional<double> NoGpus() { return std::nullopt; }

class EnergyMeterTest : public testing::Test {
 protected:
  EnergyMeterTest() { std::filesystem::remove_all(root_); }

  void Set(const std::string& zone, const std::string& file, uint64_t value) {
    std::filesystem::create_directories(root_ + "/" + zone);
    std::ofstream(absl::StrCat(root_, "/", zone, "/", file)) << value << "\n";
  }
  void SetZone(const std::string& zone, uint64_t microjoules) {
    Set(zone, "max_energy_range_uj", 10'000'000);
    Set(zone, "energy_uj", microjoules);
  }

  const std::string root_ = testing::TempDir() + "/powercap";
};

TEST_F(EnergyMeterTest, AddsThePackagesUpAndCountsOnAfterACounterHasWrapped) {
  SetZone("intel-rapl:0", 9'000'000);
  SetZone("intel-rapl:1", 1'000'000);
  SetZone("intel-rapl:0:0", 0);  // a part of the first
  EnergyMeter meter(root_, "node0", NoGpus);
  EXPECT_EQ(meter.Read().processor_joules(), 0);
  SetZone("intel-rapl:0:0", 5'000'000);
  SetZone("intel-rapl:0", 2'000'000);  // 3 J later
  SetZone("intel-rapl:1", 1'500'000);
  EXPECT_NEAR(meter.Read().processor_joules(), 3.5, 1e-9);
  SetZone("intel-rapl:0", 4'000'000);
  EXPECT_NEAR(meter.Read().processor_joules(), 5.5, 1e-9);
  EXPECT_EQ(meter.Read().host(), "node0");
  EXPECT_FALSE(meter.Read().has_gpu_joules());
}

TEST_F(EnergyMeterTest, LeavesOutWhatCannotBeRead) {
  EXPECT_FALSE(EnergyMeter(root_ + "/absent", "node0", NoGpus).Read().has_processor_joules());
  Set("intel-rapl:0", "max_energy_range_uj", 10'000'000);
  // A file that not even root can read as a number.
  std::filesystem::create_directories(root_ + "/intel-rapl:0/energy_uj");
  EXPECT_FALSE(EnergyMeter(root_, "node0", NoGpus).Read().has_processor_joules());
}

TEST_F(EnergyMeterTest, CountsGpusFromTheFirstRequestOn) {
  double joules = 1000;
  EnergyMeter meter(root_, "node0", [&joules] { return std::optional<double>(joules); });
  EXPECT_FALSE(meter.Read().has_gpu_joules());
  meter.CountGpus();
  joules = 1200;
  meter.CountGpus();
  EXPECT_EQ(meter.Read().gpu_joules(), 200);
}

v1::Energy Report(const std::string& host, std::optional<double> processors, std::optional<double> gpus) {
  v1::Energy energy;
  energy.set_host(host);
  if (processors) energy.set_processor_joules(*processors);
  if (gpus) energy.set_gpu_joules(*gpus);
  return energy;
}

TEST(EnergyAccountTest, CountsEachHostOnce) {
  EnergyAccount account;
  account.Add(Report("node0", 100, std::nullopt));
  account.Add(Report("node0", 80, 7));
  account.Add(Report("node1", 50, std::nullopt));
  account.Add(Report("node2", std::nullopt, std::nullopt));
  v1::JobStatus status;
  account.Fill(&status);
  EXPECT_EQ(status.processor_joules(), 150);
  EXPECT_EQ(status.gpu_joules(), 7);
  EXPECT_EQ(status.energy_hosts(), 2);
}

TEST(EnergyAccountTest, HasNothingWithoutReadings) {
  EnergyAccount account;
  account.Add(Report("node0", std::nullopt, std::nullopt));
  v1::JobStatus status;
  account.Fill(&status);
  EXPECT_FALSE(status.has_processor_joules());
  EXPECT_FALSE(status.has_gpu_joules());
  EXPECT_EQ(status.energy_hosts(), 0);
}

}  // namespace
}  // namespace catchment
