// What the stand-in for NVIDIA's library (fake_nvml.cc) answers. A test gets it from the loaded
// library: dlsym(handle, "coppice_fake_nvml").
#pragma once

namespace coppice::node {

struct FakeNvml {
  char bus_id[32] = "0000:3b:00.0";  // its one device
  int init_result = 0;               // 0 = success, of nvmlInit_v2
  int energy_result = 0;             // 3 = not supported
  int power_result = 0;
  unsigned long long energy_mj = 1000;
  unsigned long long energy_per_call_mj = 0;  // is added after each answer
  unsigned int power_mw = 0;
  int inits = 0, shutdowns = 0;
};

}  // namespace coppice::node
