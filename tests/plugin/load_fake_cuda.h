#ifndef TESTS_PLUGIN_LOAD_FAKE_CUDA_H_
#define TESTS_PLUGIN_LOAD_FAKE_CUDA_H_

#include "tests/plugin/fake_cuda.h"

namespace nccl_pulse {

// Loads the fake driver, once a process, so that a plugin finds it.
FakeCuda& LoadFakeCuda();

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_LOAD_FAKE_CUDA_H_
