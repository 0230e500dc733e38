// A CUDA driver whose calls cost nothing, so that only the plugin's own cost shows. Events are
// complete when they are queried.
extern "C" {  // NOLINTBEGIN(readability-identifier-naming): the driver's names

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
int cuDeviceGetUuid_v2(unsigned char* /*uuid*/, int /*device*/) { return 1; }
int cuDeviceGetPCIBusId(char* /*text*/, int /*length*/, int /*device*/) { return 1; }
int cuEventCreate(void** event, unsigned /*flags*/) {
  static int any;
  *event = &any;
  return 0;
}
int cuEventDestroy_v2(void* /*event*/) { return 0; }
int cuEventRecord(void* /*event*/, void* /*stream*/) { return 0; }
int cuEventQuery(void* /*event*/) { return 0; }
int cuEventElapsedTime_v2(float* milliseconds, void* /*begin*/, void* /*end*/) {
  *milliseconds = 0.01F;
  return 0;
}
int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = 0;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* /*mode*/) { return 0; }

}  // extern "C" NOLINTEND(readability-identifier-naming)
