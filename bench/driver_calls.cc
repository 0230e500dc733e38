// Measures what a CUDA driver call after a kernel launch costs the launching thread: the floor for
// any profiler plugin that sees when each launch ends.
//
//   bazel build -c opt //bench:driver_calls      then, on a machine with a GPU:
//   driver_calls [ROUNDS]                        400 rounds, some seconds
//
// For each call, a round launches 100 empty kernels on one stream, each followed by the call. It
// prints the medians of all rounds, and their excess over those without a call. "launching" ends
// with the last launch, "and done" when the GPU has finished. The calls alternate, so that a change
// of the machine's speed affects all of them.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

constexpr int kLaunches = 100;
constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n";

// Numbers of the driver API, cuda.h 13.0.
constexpr unsigned kEventTiming = 0;
constexpr unsigned kEventWithoutTiming = 2;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kHostMapped = 2;
constexpr unsigned kWriteWithoutBarrier = 1;

[[noreturn]] void Die(const char* what, int result) {
  std::fprintf(stderr, "driver_calls: %s failed with %d; nothing was measured\n", what, result);
  std::exit(2);
}

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ != nullptr) return;
    std::fprintf(stderr, "driver_calls: a machine with an NVIDIA GPU is needed: %s\n", dlerror());
    std::exit(2);
  }

  // Calls a function that must succeed.
  template <typename... Arguments>
  void operator()(const char* name, Arguments... arguments) const {
    const int result = Function<Arguments...>(name)(arguments...);
    if (result != 0) Die(name, result);
  }

  template <typename... Arguments>
  auto Function(const char* name) const -> int (*)(Arguments...) {
    void* function = dlsym(library_, name);
    if (function == nullptr) Die(name, -1);
    return reinterpret_cast<int (*)(Arguments...)>(function);
  }

 private:
  void* library_;
};

struct Measured {
  const char* name;
  std::function<void(int launch)> call;
  std::vector<double> launching_ns, done_ns;
};

double Median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double NsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 400;
  if (rounds < 1) {
    std::fprintf(stderr, "driver_calls: \"%s\" is no number of rounds\n", argv[1]);
    return 2;
  }
  const Driver driver;
  driver("cuInit", 0U);
  int device = 0;
  driver("cuDeviceGet", &device, 0);
  void* context = nullptr;
  driver("cuDevicePrimaryCtxRetain", &context, device);
  driver("cuCtxSetCurrent", context);
  void* module = nullptr;
  driver("cuModuleLoadData", &module, static_cast<const void*>(kEmptyKernel));
  void* kernel = nullptr;
  driver("cuModuleGetFunction", &kernel, module, "empty");
  void* stream = nullptr;
  driver("cuStreamCreate", &stream, kStreamNonBlocking);
  void* event = nullptr;
  driver("cuEventCreate", &event, kEventWithoutTiming);
  void* timing_event = nullptr;
  driver("cuEventCreate", &timing_event, kEventTiming);
  void* host = nullptr;
  driver("cuMemHostAlloc", &host, size_t{4096}, kHostMapped);
  uint64_t word = 0;
  driver("cuMemHostGetDevicePointer_v2", &word, host, 0U);

  const auto launch = driver.Function<void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, void*, void**, void**>("cuLaunchKernel");
  const auto record = driver.Function<void*, void*>("cuEventRecord");
  const auto query = driver.Function<void*>("cuEventQuery");
  const auto is_capturing = driver.Function<void*, int*>("cuStreamIsCapturing");
  const auto write =
      driver.Function<void*, uint64_t, uint32_t, unsigned>("cuStreamWriteValue32_v2");
  const auto synchronize = driver.Function<void*>("cuStreamSynchronize");
  int status = 0;

  std::vector<Measured> all = {
      {"none", [](int) {}, {}, {}},
      {"cuStreamIsCapturing", [&](int) { is_capturing(stream, &status); }, {}, {}},
      {"cuEventRecord, without timing", [&](int) { record(event, stream); }, {}, {}},
      {"cuEventRecord, with timing", [&](int) { record(timing_event, stream); }, {}, {}},
      {"cuStreamWriteValue32", [&](int i) { write(stream, word, i, 0); }, {}, {}},
      {"cuStreamWriteValue32, no barrier",
       [&](int i) { write(stream, word, i, kWriteWithoutBarrier); },
       {},
       {}},
      {"cuEventQuery", [&](int) { query(event); }, {}, {}},
  };
  for (int round = 0; round < rounds; ++round) {
    for (Measured& measured : all) {
      if (const int result = synchronize(stream)) Die("cuStreamSynchronize", result);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kLaunches; ++i) {
        launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
        measured.call(i);
      }
      measured.launching_ns.push_back(NsSince(begin) / kLaunches);
      if (const int result = synchronize(stream)) Die("cuStreamSynchronize", result);
      measured.done_ns.push_back(NsSince(begin) / kLaunches);
    }
  }

  std::printf("%-34s %12s %8s %12s %8s\n", "behind each launch", "launching ns", "more",
              "and done ns", "more");
  const double launching_ns = Median(all[0].launching_ns);
  const double done_ns = Median(all[0].done_ns);
  for (Measured& measured : all) {
    const double launching = Median(measured.launching_ns);
    const double done = Median(measured.done_ns);
    std::printf("%-34s %12.0f %+8.0f %12.0f %+8.0f\n", measured.name, launching,
                launching - launching_ns, done, done - done_ns);
  }
  return 0;
}
