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

bool IsWithin(absl::Duration time, absl::Duration least) {
  return time >= least && time <= absl::Hours(24);
}

}  // namespace

std::vector<Flag> WithHangFlags(HangFlags* flags, std::vector<Flag> own) {
  for (const Flag& each :
       {Flag{"--on-hang", &flags->program}, Flag{"--on-hang-after", &flags->after},
        Flag{"--on-hang-pause", &flags->pause}, Flag{"--on-hang-timeout", &flags->timeout},
        Flag{"--on-hang-as-root", &flags->as_root}}) {
    own.push_back(each);
  }
  return own;
}

bool ReadHangFlags(const HangFlags& flags, HangProgram::Options* options, std::string* error) {
  *error = WhyNotRun(flags.program);
  if (!error->empty()) return false;
  if (!flags.program.empty() && geteuid() == 0 && !flags.as_root) {
    *error =
        "--on-hang would start its program as root: run this as another user, or add "
        "--on-hang-as-root";
  } else if (!IsWithin(flags.after, absl::ZeroDuration())) {
    *error = "--on-hang-after is not between 0 and 24h";
  } else if (!IsWithin(flags.pause, absl::Seconds(1))) {
    *error = "--on-hang-pause is not between 1s and 24h";
  } else if (!IsWithin(flags.timeout, absl::Seconds(1))) {
    *error = "--on-hang-timeout is not between 1s and 24h";
  }
  if (!error->empty()) return false;
  options->path = flags.program;
  options->after = absl::ToChronoMilliseconds(flags.after);
  options->pause = absl::ToChronoMilliseconds(flags.pause);
  options->patience = absl::ToChronoMilliseconds(flags.timeout);
  options->log = LogLine;
  return true;
}

}  // namespace nccl_pulse
