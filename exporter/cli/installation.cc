#include "exporter/cli/installation.h"

#include <unistd.h>

#include <climits>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

constexpr char kLibrary[] = "libnccl-profiler-pulse.so";
constexpr char kWorkspace[] = "nccl_pulse";  // as in WORKSPACE: the folder in runfiles

// Library folders below the prefix: common, Debian's, and Red Hat's.
#if defined(__x86_64__)
constexpr const char* kLibraryFolders[] = {"lib", "lib/x86_64-linux-gnu", "lib64"};
#elif defined(__aarch64__)
constexpr const char* kLibraryFolders[] = {"lib", "lib/aarch64-linux-gnu", "lib64"};
#else
constexpr const char* kLibraryFolders[] = {"lib", "lib64"};
#endif
// No dynamic linker searches this folder, so no other program loads the file as its driver.
constexpr const char* kPrivateFolders[] = {"lib/nccl-pulse"};

// Returns the program's path, with symbolic links resolved.
std::string ProgramPath() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : std::string();
}

// Looks for `folder`/`name` in a build tree, then for `name` beside the program and in folders
// below the prefix, the parent of the program's folder. Returns "" if there is none.
template <size_t kCount>
std::string Find(const std::string& folder, const std::string& name,
                 const char* const (&installed)[kCount]) {
  const std::string program = ProgramPath();
  const std::string beside = program.substr(0, program.rfind('/'));
  const std::string prefix = beside.substr(0, beside.rfind('/'));
  const std::string relative = std::string("/") + kWorkspace + "/" + folder + "/" + name;
  // Read before any thread exists.
  const char* runfiles = std::getenv("RUNFILES_DIR");
  std::vector<std::string> paths = {(runfiles != nullptr ? runfiles : "") + relative,
                                    program + ".runfiles" + relative, beside + "/" + name};
  for (const char* each : installed) paths.push_back(absl::StrCat(prefix, "/", each, "/", name));
  for (const std::string& path : paths) {
    if (access(path.c_str(), R_OK) == 0) return std::filesystem::absolute(path);
  }
  return "";
}

}  // namespace

std::string FindPluginLibrary() { return Find("plugin", kLibrary, kLibraryFolders); }

std::string FindSimulatedGpu() {
  return Find("simulation", "libpulse-simulated-gpu.so", kPrivateFolders);
}

}  // namespace nccl_pulse
