#include "exporter/cli/flags/hang_flags.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/cli/service.h"

namespace nccl_pulse {
namespace {

// Returns "" if the file at this path can be run, else the reason why not.
std::string WhyNotRun(const std::string& path) {
  if (path.empty()) return "";
  if (path[0] != '/') return absl::StrCat("--on-hang=", path, " is not an absolute path");
  struct stat file;
  if (stat(path.c_str(), &file) != 0)
    return absl::StrCat("--on-hang=", path, ": ", ErrorText(errno));
  if (!S_ISREG(file.st_mode) || access(path.c_str(), X_OK) != 0) {
    return absl::StrCat("--on-hang=", path, " is not an executable file");
  }
  return "";
}

}  // namespace

FlagTable HangProgramFlags(HangFlags* flags) {
  return {
      {"--on-hang", &flags->program, "PROGRAM",
       "program to start once for each hang, without a shell or arguments; its standard input is "
       "the verdict as JSON"},
      {"--on-hang-after", &flags->after, "DURATION",
       "wait until the hang has lasted this long (default 0)", "0 to 24h"},
      {"--on-hang-pause", &flags->pause, "DURATION", "shortest time between two starts for one job",
       "1s to 24h"},
      {"--on-hang-timeout", &flags->timeout, "DURATION",
       "limit for the program, which is then ended", "1s to 24h"},
      {"--on-hang-as-root", &flags->as_root, "", "start it even as root"}};
}

bool ReadHangFlags(const HangFlags& flags, HangProgram::Options* options, std::string* error) {
  *error = WhyNotRun(flags.program);
  if (!error->empty()) return false;
  if (!flags.program.empty() && geteuid() == 0 && !flags.as_root) {
    *error =
        "--on-hang would start its program as root: run this as another user, or add "
        "--on-hang-as-root";
    return false;
  }
  options->path = flags.program;
  options->after = absl::ToChronoMilliseconds(flags.after);
  options->pause = absl::ToChronoMilliseconds(flags.pause);
  options->patience = absl::ToChronoMilliseconds(flags.timeout);
  options->log = LogLine;
  return true;
}

}  // namespace nccl_pulse
