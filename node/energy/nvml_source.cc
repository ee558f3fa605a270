#include "node/energy/nvml_source.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::node {
namespace {

// The part of NVML's C interface that is used here. nvmlReturn_t is an enum; 0 is success.
using Device = struct NvmlDevice*;
constexpr int kNotSupported = 3;

struct Calls {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*device_by_bus_id)(const char*, Device*);
  int (*total_energy)(Device, unsigned long long*);  // mJ since the driver was loaded
  int (*power)(Device, unsigned int*);               // mW
};

// Closes the library at the end of its life, and NVML before that if it has begun.
struct Library {
  explicit Library(void* opened) : handle(opened) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (begun) calls.shutdown();
    dlclose(handle);
  }
  absl::Status Error(const char* call, int code) const {
    return absl::UnavailableError(absl::StrCat(call, ": ", calls.error_string(code)));
  }

  void* const handle;
  Calls calls;
  bool begun = false;
};

template <typename Function>
bool Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("NVML, a part of the NVIDIA driver: ", dlerror()));
  }
  auto library = std::make_unique<Library>(handle);
  Calls& calls = library->calls;
  const bool complete = Find(handle, "nvmlInit_v2", &calls.init) &&
                        Find(handle, "nvmlShutdown", &calls.shutdown) &&
                        Find(handle, "nvmlErrorString", &calls.error_string) &&
                        Find(handle, "nvmlDeviceGetHandleByPciBusId_v2", &calls.device_by_bus_id) &&
                        Find(handle, "nvmlDeviceGetTotalEnergyConsumption", &calls.total_energy) &&
                        Find(handle, "nvmlDeviceGetPowerUsage", &calls.power);
  if (!complete) return absl::NotFoundError(absl::StrCat(path, ": ", dlerror()));
  return library;
}

class NvmlSource final : public EnergySource {
 public:
  NvmlSource(std::unique_ptr<Library> library, Device device, std::string where, const Clock* clock)
      : library_(std::move(library)), device_(device), where_(std::move(where)), clock_(clock) {}

  absl::Status Begin() {
    const int code = library_->calls.total_energy(device_, &last_mj_);
    has_counter_ = code != kNotSupported;
    if (has_counter_ && code != 0) return library_->Error(kEnergy, code);
    if (!has_counter_) COPPICE_RETURN_IF_ERROR(ReadPower(&last_watts_));
    last_s_ = clock_->NowSeconds();
    return absl::OkStatus();
  }
  const char* kind() const override { return "nvml"; }
  std::string description() const override {
    return absl::StrCat("GPU ", where_, has_counter_ ? "" : " by its power");
  }
  absl::StatusOr<double> Joules() override {
    COPPICE_RETURN_IF_ERROR(has_counter_ ? Count() : Integrate());
    return joules_;
  }

 private:
  static constexpr char kEnergy[] = "nvmlDeviceGetTotalEnergyConsumption";
  static constexpr char kPower[] = "nvmlDeviceGetPowerUsage";

  absl::Status Count() {
    unsigned long long now_mj = 0;
    const int code = library_->calls.total_energy(device_, &now_mj);
    if (code != 0) return library_->Error(kEnergy, code);
    if (now_mj < last_mj_) {
      return absl::DataLossError(
          absl::StrCat(kEnergy, ": fell from ", last_mj_, " to ", now_mj, " mJ"));
    }
    joules_ += static_cast<double>(now_mj - last_mj_) * 1e-3;
    last_mj_ = now_mj;
    return absl::OkStatus();
  }
  absl::Status ReadPower(double* watts) {
    unsigned int milliwatts = 0;
    const int code = library_->calls.power(device_, &milliwatts);
    if (code != 0) return library_->Error(kPower, code);
    *watts = milliwatts * 1e-3;
    return absl::OkStatus();
  }
  // The trapezoid rule.
  absl::Status Integrate() {
    double watts = 0;
    COPPICE_RETURN_IF_ERROR(ReadPower(&watts));
    const double now_s = clock_->NowSeconds();
    joules_ += (last_watts_ + watts) / 2 * (now_s - last_s_);
    last_watts_ = watts;
    last_s_ = now_s;
    return absl::OkStatus();
  }

  const std::unique_ptr<Library> library_;
  const Device device_;
  const std::string where_;
  const Clock* const clock_;
  bool has_counter_ = true;
  unsigned long long last_mj_ = 0;
  double last_watts_ = 0, last_s_ = 0;
  double joules_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EnergySource>> OpenNvml(const std::string& library,
                                                       const std::string& pci_bus_id,
                                                       const Clock* clock) {
  COPPICE_ASSIGN_OR_RETURN(std::unique_ptr<Library> loaded, LoadLibrary(library));
  int code = loaded->calls.init();
  if (code != 0) return loaded->Error("nvmlInit_v2", code);
  loaded->begun = true;
  Device device = nullptr;
  code = loaded->calls.device_by_bus_id(pci_bus_id.c_str(), &device);
  if (code != 0) {
    return loaded->Error(absl::StrCat("nvmlDeviceGetHandleByPciBusId_v2 of ", pci_bus_id).c_str(),
                         code);
  }
  auto source = std::make_unique<NvmlSource>(std::move(loaded), device, pci_bus_id, clock);
  COPPICE_RETURN_IF_ERROR(source->Begin());
  return source;
}

}  // namespace coppice::node
