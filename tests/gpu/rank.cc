#include "tests/gpu/rank.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <thread>

namespace nccl_pulse {
namespace {

// Called before there is a second thread.
void* Open(const std::string& path, std::initializer_list<const char*> names, std::string* error) {
  std::string tried;
  for (const char* name : names) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string file = folder + "/" + name;
      if (folder.empty() || access(file.c_str(), R_OK) != 0) continue;
      if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
      tried += std::string("; ") + dlerror();
    }
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
    tried += std::string("; ") + dlerror();
  }
  *error = "cannot load " + std::string(*names.begin()) + tried;
  return nullptr;
}

template <typename Function>
bool Resolve(void* library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) *error = std::string("no function ") + name;
  return *function != nullptr;
}

// Looks for libnccl.so.2 and libcudart.so.13 or .12 in the folders of `path` ("a:b:c"), then where
// the dynamic linker looks. False, with what was not found in `error`.
bool LoadApi(const std::string& path, Api* api, std::string* error) {
  void* cuda = Open(path, {"libcudart.so.13", "libcudart.so.12"}, error);
  if (cuda == nullptr) return false;
  void* nccl = Open(path, {"libnccl.so.2"}, error);
  if (nccl == nullptr) return false;
#define NCCL_PULSE_RESOLVE(name, parameters) &&Resolve(library, #name, &api->name, error)
  void* library = nccl;
  bool found = true NCCL_PULSE_NCCL_FUNCTIONS(NCCL_PULSE_RESOLVE);
  library = cuda;
  found = found NCCL_PULSE_CUDA_FUNCTIONS(NCCL_PULSE_RESOLVE);
#undef NCCL_PULSE_RESOLVE
  return found && Resolve(nccl, "ncclGetErrorString", &api->ncclGetErrorString, error) &&
         Resolve(nccl, "ncclGetLastError", &api->ncclGetLastError, error) &&
         Resolve(cuda, "cudaGetErrorString", &api->cudaGetErrorString, error);
}

// No rank sees the file before it is complete.
bool PublishId(const std::string& path, const NcclUniqueId& id) {
  const std::string partial = path + ".partial";
  FILE* file = std::fopen(partial.c_str(), "wb");
  return file != nullptr && std::fwrite(&id, sizeof(id), 1, file) == 1 && std::fclose(file) == 0 &&
         std::rename(partial.c_str(), path.c_str()) == 0;
}

bool AwaitId(const std::string& path, NcclUniqueId* id) {
  while (true) {
    if (FILE* file = std::fopen(path.c_str(), "rb")) {
      const bool complete = std::fread(id, sizeof(*id), 1, file) == 1;
      std::fclose(file);
      return complete;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

Api g_api;
bool g_stays_after_errors = false;
std::string g_way;

std::function<void(const std::string&)> SetInt(int* value) {
  return [value](const std::string& text) { *value = std::atoi(text.c_str()); };
}

void ReadFlags(int argc, char** argv, RankFlags* flags, FlagSetters others) {
  FlagSetters setters = {
      {"--rank", SetInt(&flags->rank)},
      {"--nranks", SetInt(&flags->nranks)},
      {"--gpu", SetInt(&flags->gpu)},
      {"--exchange", [&](const std::string& v) { flags->exchange = v; }},
      {"--library-path", [&](const std::string& v) { flags->library_path = v; }},
  };
  setters.merge(others);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const auto setter = setters.find(argument.substr(0, equals));
    if (equals == std::string::npos || setter == setters.end())
      Die(kExitUsage, "what is " + argument + "?");
    setter->second(argument.substr(equals + 1));
  }
  if (flags->rank < 0 || flags->rank >= flags->nranks || flags->exchange.empty()) {
    Die(kExitUsage, "usage: --rank=R --nranks=N --gpu=G --exchange=FOLDER [...]");
  }
}

std::vector<std::string> Listed(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) parts.push_back(part);
  return parts;
}

int Begin(const RankFlags& flags, unsigned life_seconds) {
  alarm(life_seconds);
  std::string error;
  if (!LoadApi(flags.library_path, &g_api, &error)) Die(kExitApi, error);
  int gpus = 1;
  CheckCuda(g_api.cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  CheckCuda(g_api.cudaSetDevice(flags.gpu % gpus), "cudaSetDevice");
  int version = 0;
  CheckNccl(g_api.ncclGetVersion(&version), "ncclGetVersion");
  return version;
}

void Die(int status, const std::string& message) {
  std::cerr << program_invocation_short_name << ": " << message << std::endl;
  _exit(status);  // other threads may be inside NCCL: no destructors
}

void WaitForEver() {
  while (true) pause();
}

void Fail(const std::string& message) {
  if (!g_stays_after_errors) Die(kExitApi, message);
  std::cerr << program_invocation_short_name << ": " << message << std::endl;
  std::string plain = message;
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c == '"' || c == '\\' || c < ' '; }, ' ');
  Say("error", ",\"way\":\"" + g_way + "\",\"text\":\"" + plain + "\"");
  WaitForEver();
}

void CheckCuda(CudaError error, const std::string& what) {
  if (error != 0) Fail(what + ": " + g_api.cudaGetErrorString(error));
}

void CheckNccl(NcclResult result, const std::string& what, NcclComm comm) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  Fail(what + ": " + g_api.ncclGetErrorString(result) + ", " + g_api.ncclGetLastError(comm));
}

void WaitForCall(NcclComm comm, const char* what) {
  NcclResult result = kNcclInProgress;
  while (true) {
    CheckNccl(g_api.ncclCommGetAsyncError(comm, &result), what, comm);
    if (result != kNcclInProgress) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  CheckNccl(result, what, comm);
}

void Say(const std::string& event, const std::string& more) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("{\"event\":\"%s\",\"pid\":%d,\"time\":%.6f%s}\n", event.c_str(), getpid(),
              now.count(), more.c_str());
  std::fflush(stdout);
}

void RunPhases(const std::vector<std::string>& phases,
               const std::function<bool(const std::string& phase)>& run) {
  for (const std::string& phase : phases) {
    if (!run(phase)) Die(kExitUsage, "no phase " + phase);
    std::string line;
    if (!std::getline(std::cin, line)) Die(kExitUsage, "end of input");
  }
}

NcclUniqueId ExchangeId(const RankFlags& flags, const std::string& name) {
  const std::string path = flags.exchange + "/id-" + name;
  NcclUniqueId id{};
  if (flags.rank == 0) {
    CheckNccl(g_api.ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (!PublishId(path, id)) Fail("cannot write " + path);
  } else if (!AwaitId(path, &id)) {
    Fail("cannot read " + path);
  }
  return id;
}

NcclComm NamedCommunicators::Get(const std::string& name) {
  const auto found = communicators_.find(name);
  if (found != communicators_.end()) return found->second;
  const auto entry = communicators_.emplace(name, nullptr).first;
  NcclConfig config;
  config.comm_name = entry->first.c_str();  // NCCL keeps the pointer; a map's keys stay
  CheckNccl(g_api.ncclCommInitRankConfig(&entry->second, flags_.nranks, ExchangeId(flags_, name),
                                         flags_.rank, &config),
            "ncclCommInitRankConfig");
  return entry->second;
}

Buffers::Buffers(uint64_t bytes) {
  CheckCuda(g_api.cudaStreamCreateWithFlags(&stream_, kStreamNonBlocking), "cudaStreamCreate");
  for (void** buffer : {&send_, &recv_}) {
    CheckCuda(g_api.cudaMalloc(buffer, bytes), "cudaMalloc");
    CheckCuda(g_api.cudaMemsetAsync(*buffer, 0, bytes, stream_), "cudaMemsetAsync");
  }
  Synchronize();
}

}  // namespace nccl_pulse
