// The three calls of libcuda.so.1 that bench/floor_plugin.cc makes, counted.
#include "tests/bench/fake/counting_cuda.h"

extern "C" {

CountedCalls counted_calls{};

int cuEventCreate(void** event, unsigned /*flags*/) {
  *event = &counted_calls;
  ++counted_calls.events;
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  if (event != &counted_calls) return 400;  // CUDA_ERROR_INVALID_HANDLE
  ++counted_calls.records;
  counted_calls.last_stream = stream;
  return 0;
}
int cuStreamIsCapturing(void* /*stream*/, int* status) {
  ++counted_calls.questions;
  *status = counted_calls.capturing;
  return 0;
}

}  // extern "C"
