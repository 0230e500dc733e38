#include "bench/replay/trace_file.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace nccl_pulse {
namespace {

std::string Reason() { return std::generic_category().message(errno); }

}  // namespace

std::optional<std::string> ReadTraceText(const std::string& path, ReplayError* error) {
  const bool is_packed = absl::EndsWith(path, ".xz");
  const std::string unpack =
      absl::StrCat("exec xz -dc <'", absl::StrReplaceAll(path, {{"'", "'\\''"}}), "'");
  FILE* file = is_packed ? popen(unpack.c_str(), "re") : std::fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    *error = {kReplayNoFolder, absl::StrCat("cannot open ", path, ": ", Reason())};
    return std::nullopt;
  }
  std::string content;
  char buffer[1 << 16];
  size_t size;
  while ((size = std::fread(buffer, 1, sizeof(buffer), file)) > 0) content.append(buffer, size);
  const bool is_broken = std::ferror(file) != 0;
  if (is_packed && pclose(file) != 0) {
    *error = {kReplayBrokenTrace, absl::StrCat(path, ": not a whole xz file, or there is no xz")};
    return std::nullopt;
  }
  if (!is_packed) std::fclose(file);
  if (is_broken) {
    *error = {kReplayNoFolder, absl::StrCat("cannot read ", path, ": ", Reason())};
    return std::nullopt;
  }
  return content;
}

std::optional<std::vector<std::string>> ListTraceFiles(const std::string& folder,
                                                       ReplayError* error) {
  std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  if (entries == nullptr) {
    *error = {kReplayNoFolder,
              absl::StrCat("cannot open the trace folder ", folder, ": ", Reason())};
    return std::nullopt;
  }
  std::vector<std::string> files;
  // Only one thread uses this stream, which is all that readdir requires.
  while (const dirent* entry = readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (absl::EndsWith(name, ".jsonl") || absl::EndsWith(name, ".jsonl.xz")) {
      files.push_back(absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", name));
    }
  }
  if (files.empty()) {
    *error = {kReplayNoTrace, absl::StrCat("no *.jsonl or *.jsonl.xz file in ", folder)};
    return std::nullopt;
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace nccl_pulse
