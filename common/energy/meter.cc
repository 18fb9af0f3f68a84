#include "common/energy/meter.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/base/file_access.h"
#include "common/base/machine.h"

namespace catchment {
namespace {

constexpr char kPowercap[] = "/sys/class/powercap";
constexpr char kPackage[] = "intel-rapl:";  // of AMD's processors, too

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  uint64_t number = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

// Returns true for "intel-rapl:0", and false for a part of it, "intel-rapl:0:1".
bool IsPackage(absl::string_view name) {
  int number = 0;
  return absl::ConsumePrefix(&name, kPackage) && absl::SimpleAtoi(name, &number);
}

// NVML's functions, of which only the layout of arguments is needed. All return 0 if they succeed.
class Nvml {
 public:
  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [library](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    int (*init)() = nullptr;
    ready_ = find("nvmlInit_v2", &init) && find("nvmlDeviceGetCount_v2", &count_) &&
             find("nvmlDeviceGetHandleByIndex_v2", &handle_) &&
             find("nvmlDeviceGetTotalEnergyConsumption", &energy_) && init() == 0;
  }

  // Returns the energy of all devices since their driver was loaded.
  std::optional<double> Joules() const {
    unsigned int devices = 0;
    if (!ready_ || count_(&devices) != 0 || devices == 0) return std::nullopt;
    double joules = 0;
    for (unsigned int i = 0; i < devices; ++i) {
      void* device = nullptr;
      unsigned long long millijoules = 0;
      if (handle_(i, &device) != 0 || energy_(device, &millijoules) != 0) return std::nullopt;
      joules += 1e-3 * static_cast<double>(millijoules);
    }
    return joules;
  }

 private:
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_)(unsigned int, void**) = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  bool ready_ = false;
};

std::optional<double> NvmlJoules() {
  static const auto* const nvml = new Nvml;
  return nvml->Joules();
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& powercap, std::string host, GpuJoules gpus)
    : host_(std::move(host)), gpus_(std::move(gpus)) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(powercap, error)) {
    if (!IsPackage(entry.path().filename().string())) continue;
    const std::string counter = entry.path() / "energy_uj";
    const std::optional<uint64_t> now = ReadNumber(counter);
    const std::optional<uint64_t> range = ReadNumber(entry.path() / "max_energy_range_uj");
    if (now && range) packages_.push_back({counter, *range, *now});
  }
}

void EnergyMeter::CountGpus() {
  MutexLock lock(&mu_);
  if (!gpus_at_start_) gpus_at_start_ = gpus_();
}

v1::Energy EnergyMeter::Read() {
  MutexLock lock(&mu_);
  v1::Energy energy;
  energy.set_host(host_);
  for (Package& package : packages_) {
    const std::optional<uint64_t> now = ReadNumber(package.counter);
    if (!now) continue;
    const uint64_t wrapped = *now < package.last ? package.range : 0;
    processor_joules_ += 1e-6 * static_cast<double>(*now + wrapped - package.last);
    package.last = *now;
  }
  if (!packages_.empty()) energy.set_processor_joules(processor_joules_);
  if (!gpus_at_start_) return energy;
  if (const std::optional<double> now = gpus_()) energy.set_gpu_joules(std::max(0.0, *now - *gpus_at_start_));
  return energy;
}

EnergyMeter& HostEnergy() {
  static auto* const meter = new EnergyMeter(kPowercap, HostName(), NvmlJoules);
  return *meter;
}

}  // namespace catchment
