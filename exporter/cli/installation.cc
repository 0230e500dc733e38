#include "exporter/cli/installation.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <initializer_list>

namespace nccl_pulse {
namespace {

constexpr char kLibrary[] = "libnccl-profiler-pulse.so";
constexpr char kWorkspace[] = "nccl_pulse";  // as in WORKSPACE: the folder's name in runfiles

// Debian's folder for libraries of this architecture, below lib.
#if defined(__x86_64__)
constexpr char kMultiarch[] = "x86_64-linux-gnu/";
#elif defined(__aarch64__)
constexpr char kMultiarch[] = "aarch64-linux-gnu/";
#else
constexpr char kMultiarch[] = "";
#endif

// The program's file, with symbolic links resolved.
std::string ProgramPath() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : std::string();
}

std::string FirstExisting(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

// Looks for `in_workspace` in a build tree, and for the given places relative to the program's
// folder.
std::string Find(const std::string& in_workspace, const std::string& beside,
                 const std::string& installed, const std::string& installed_by_debian) {
  const std::string program = ProgramPath();
  const std::string folder = program.substr(0, program.rfind('/'));
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  const std::string relative = std::string("/") + kWorkspace + "/" + in_workspace;
  // Read before any thread exists.
  const char* runfiles = std::getenv("RUNFILES_DIR");  // NOLINT(concurrency-mt-unsafe)
  return FirstExisting({(runfiles != nullptr ? runfiles : "") + relative,
                        program + ".runfiles" + relative, folder + "/" + beside,
                        prefix + "/" + installed, prefix + "/" + installed_by_debian});
}

}  // namespace

std::string FindPluginLibrary() {
  return Find(std::string("plugin/") + kLibrary, kLibrary, std::string("lib/") + kLibrary,
              std::string("lib/") + kMultiarch + kLibrary);
}

std::string FindSimulatedGpu() {
  const std::string name = "libpulse-simulated-gpu.so";
  // In a folder that no dynamic linker searches, so that no other program takes it for its driver.
  const std::string installed = "lib/nccl-pulse/" + name;
  return Find("simulation/" + name, name, installed, installed);
}

}  // namespace nccl_pulse
