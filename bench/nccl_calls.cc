#include "bench/nccl_calls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse::bench {

const void* FindProfiler(const std::string& library, const char* symbol) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  const void* profiler = dlsym(handle, symbol);
  if (profiler == nullptr) {
    fprintf(stderr, "%s: no %s\n", library.c_str(), symbol);
    exit(2);
  }
  return profiler;
}

void* OpenDriver(const char* name) {
  void* const driver = dlopen(FindLibrary(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return driver;
}

CountedCalls::CountedCalls(const std::string& library) : calls_(library) {
  void* const driver = OpenDriver(kDriver);
  allocate_ = reinterpret_cast<Allocate*>(dlsym(driver, "cuMemAlloc_v2"));
  records_ = static_cast<std::atomic<unsigned>*>(dlsym(driver, "free_cuda_records"));
}

void* CountedCalls::Init(uint64_t comm_id) {
  constexpr size_t kCounterAt = 352;
  communicator_ = std::make_unique<Communicator>();
  allocate_(&communicator_->block, kWorkBlockBytes);
  auto* const block = reinterpret_cast<char*>(communicator_->block);  // NOLINT
  const int32_t head[] = {0, NcclCalls<ApiV6>::kRanks, 0, 1};
  std::memcpy(block, head, sizeof(head));
  const uint64_t channels = communicator_->block + kWorkChannelsAt;
  std::memcpy(block + kWorkChannelsAddressAt, &channels, sizeof(channels));
  counter_ = reinterpret_cast<uint64_t*>(block + kWorkChannelsAt + kCounterAt);
  void* const context = calls_.Init(comm_id, &communicator_->context);
  for (int i = 0; i < 10000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    constexpr unsigned kBurst = 200;
    const unsigned before = records_->load();
    for (unsigned j = 0; j < kBurst; ++j) EagerCollective(context, 0, 24);
    if (records_->load() - before < kBurst / 2) return context;
  }
  fprintf(stderr, "NCCL's counter is not proven\n");
  exit(2);
}

std::string FindLibrary(const std::string& name) {
  // `bazel run` and `bazel test` start in the runfiles. Elsewhere a copy beside the binary is used.
  if (access(name.c_str(), R_OK) == 0) return "./" + name;
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) {
    std::string directory = self;
    directory.resize(directory.rfind('/'));
    for (const std::string& candidate : {directory + "/" + name, directory + "/../" + name,
                                         directory + "/" + name.substr(name.rfind('/') + 1)}) {
      if (access(candidate.c_str(), R_OK) == 0) return candidate;
    }
  }
  return name;
}

}  // namespace nccl_pulse::bench
