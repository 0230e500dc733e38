// What counting_cuda.cc counts; its library exports one as `counted_calls`.
#ifndef TESTS_BENCH_FAKE_COUNTING_CUDA_H_
#define TESTS_BENCH_FAKE_COUNTING_CUDA_H_

struct CountedCalls {
  int events, records, questions;
  void* last_stream;  // of a record
  int capturing;      // what every stream is said to be, CUstreamCaptureStatus
};

#endif  // TESTS_BENCH_FAKE_COUNTING_CUDA_H_
