// A library with the interface of NVML, as far as nvml_source.cc uses it: one device, whose counter
// grows with every question (COPPICE_FAKE_NVML_MJ millijoules a question, for tests that cannot
// reach FakeNvml). Built as a shared library of its own.
#include "tests/node/energy/fake_nvml.h"

#include <cstdlib>
#include <cstring>

using coppice::node::FakeNvml;

namespace {

FakeNvml MakeFake() {
  FakeNvml fake;
  if (const char* text = std::getenv("COPPICE_FAKE_NVML_MJ"))
    fake.energy_per_call_mj = std::strtoull(text, nullptr, 10);
  if (const char* text = std::getenv("COPPICE_FAKE_NVML_BUS_ID"))
    std::strncpy(fake.bus_id, text, sizeof fake.bus_id - 1);
  return fake;
}
FakeNvml* Fake() {
  static FakeNvml fake = MakeFake();
  return &fake;
}

}  // namespace

extern "C" {

FakeNvml* coppice_fake_nvml() { return Fake(); }

int nvmlInit_v2() {
  if (Fake()->init_result == 0) ++Fake()->inits;
  return Fake()->init_result;
}
int nvmlShutdown() {
  ++Fake()->shutdowns;
  return 0;
}
const char* nvmlErrorString(int result) { return result == 3 ? "Not Supported" : "GPU is lost"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (std::strcmp(bus_id, Fake()->bus_id) != 0) return 6;  // not found
  *device = Fake();
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  auto* fake = static_cast<FakeNvml*>(device);
  *millijoules = fake->energy_mj;
  fake->energy_mj += fake->energy_per_call_mj;
  return fake->energy_result;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  const auto* fake = static_cast<FakeNvml*>(device);
  *milliwatts = fake->power_mw;
  return fake->power_result;
}

}  // extern "C"
