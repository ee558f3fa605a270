// What stands for libcuda.so.1 where coppice-cuda-driver is tested: the driver of CUDA 12.2.
extern "C" int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}
