// Simulates a CUDA driver whose calls cost next to nothing, so that only the plugin's own cost
// shows. Replays, which have no streams, also use it. Events are complete when queried; a launch's
// duration depends on its number. One process in four is quicker, like a rank that arrives last.
// Each process has its own GPU.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

extern "C" {  // NOLINTBEGIN(readability-identifier-naming): the driver's names

// Number of events recorded, to show whether launches have events behind them.
std::atomic<unsigned> free_cuda_records;

int cuCtxGetCurrent(void** context) {
  static int current;
  *context = &current;
  return 0;
}
int cuCtxSetCurrent(void* /*context*/) { return 0; }
int cuCtxGetId(void* /*context*/, unsigned long long* id) {
  *id = 1;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int /*device*/) {
  const pid_t pid = getpid();
  std::memset(uuid, 0, 16);
  std::memcpy(uuid, &pid, sizeof(pid));
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int length, int /*device*/) {
  std::snprintf(text, length, "0000:%02x:00.0", static_cast<unsigned>(getpid()) % 256);
  return 0;
}
int cuEventCreate(void** event, unsigned /*flags*/) {
  static int any;
  *event = &any;
  return 0;
}
int cuEventDestroy_v2(void* /*event*/) { return 0; }
int cuEventRecord(void* /*event*/, void* /*stream*/) {
  // No read-modify-write: that would be most of the cost.
  free_cuda_records.store(free_cuda_records.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  return 0;
}
int cuEventQuery(void* /*event*/) { return 0; }
int cuEventElapsedTime_v2(float* milliseconds, void* /*begin*/, void* /*end*/) {
  static std::atomic<unsigned> calls;
  const unsigned call = calls.fetch_add(1, std::memory_order_relaxed);
  *milliseconds = 0.03F * static_cast<float>(1 + call % 7) * (getpid() % 4 == 0 ? 1 : 3);
  return 0;
}
int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = 0;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* /*mode*/) { return 0; }

}  // extern "C" NOLINTEND(readability-identifier-naming)
