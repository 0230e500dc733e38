#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/base/error_text.h"
#include "exporter/base/files.h"
#include "exporter/base/gzip.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/base/plain_text.h"
#include "exporter/timeline/observation.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Files = std::map<std::string, std::string>;

constexpr std::size_t kMostBytes = 512 << 20;
constexpr std::size_t kBlock = 512;  // of a tar file (POSIX.1-2001, ustar)

// True for files that the timeline uses; the rest of a capture is not read.
bool IsWanted(std::string_view name) {
  return name == "verdict.json" || name == "missing.txt" ||
         (absl::StartsWith(name, "endpoints/") && absl::EndsWith(name, ".json"));
}

bool ReadFile(const fs::path& path, std::string* text, std::string* error) {
  if (ReadRegularFile(path.string(), kMostBytes, text, error)) return true;
  *error = absl::StrCat("cannot read ", path.string(), ": ", *error);
  return false;
}

bool ReadFolder(const std::string& path, Files* files, std::string* error) {
  std::size_t bytes = 0;
  std::error_code problem;
  for (fs::recursive_directory_iterator it(path, problem), end; !problem && it != end;
       it.increment(problem)) {
    if (!it->is_regular_file(problem) || it->is_symlink(problem)) continue;
    const std::string name = it->path().lexically_relative(path).string();
    if (!IsWanted(name)) continue;
    std::string text;
    if (!ReadFile(it->path(), &text, error)) return false;
    bytes += text.size();
    if (bytes > kMostBytes) {
      *error = absl::StrCat(path, " has more than 512 MiB");
      return false;
    }
    (*files)[name] = std::move(text);
  }
  if (problem) *error = absl::StrCat("cannot read ", path, ": ", problem.message());
  return !problem;
}

// Returns the text in a field of a tar header. It ends with a zero byte unless it fills the field.
std::string FieldOf(std::string_view block, std::size_t at, std::size_t size) {
  const std::string_view field = block.substr(at, size);
  return std::string(field.substr(0, field.find('\0')));
}

// Returns false if the block is no header.
bool ReadHeader(std::string_view block, std::string* name, std::size_t* bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const bool is_sum = i >= 148 && i < 156;
    sum += is_sum ? ' ' : static_cast<unsigned char>(block[i]);
  }
  const std::string said = FieldOf(block, 148, 8), size = FieldOf(block, 124, 12);
  if (std::strtoul(said.c_str(), nullptr, 8) != sum) return false;
  *bytes = std::strtoull(size.c_str(), nullptr, 8);
  const std::string folder = FieldOf(block, 345, 155);
  *name = absl::StrCat(folder, folder.empty() ? "" : "/", FieldOf(block, 0, 100));
  return true;
}

bool ReadArchive(const std::string& path, Files* files, std::string* error) {
  std::string packed;
  if (!ReadFile(path, &packed, error)) return false;
  const std::optional<std::string> tar = GunzipAtMost(packed, kMostBytes);
  if (!tar) {
    *error = absl::StrCat(path, " is not a whole .tar.gz of at most 512 MiB");
    return false;
  }
  std::string_view rest = *tar;
  while (rest.size() >= kBlock && rest.find_first_not_of('\0') != rest.npos) {
    std::string name;
    std::size_t bytes = 0;
    if (!ReadHeader(rest.substr(0, kBlock), &name, &bytes) || bytes > rest.size() - kBlock) {
      *error = absl::StrCat(path, " is not a tar file, or is broken");
      return false;
    }
    // The outermost folder comes first.
    const std::size_t slash = name.find('/');
    if (slash != name.npos && IsWanted(std::string_view(name).substr(slash + 1))) {
      (*files)[name.substr(slash + 1)] = std::string(rest.substr(kBlock, bytes));
    }
    rest.remove_prefix(std::min(rest.size(), kBlock + (bytes + kBlock - 1) / kBlock * kBlock));
  }
  return true;
}

// Returns endpoint node-1:9410 for "0001-node-1_9410".
std::string EndpointName(std::string_view folder) {
  const std::size_t dash = folder.find('-');
  std::string name(dash == folder.npos ? folder : folder.substr(dash + 1));
  const std::size_t colon = name.rfind('_');
  if (colon != name.npos) name[colon] = ':';
  return name;
}

std::optional<ClockOffset> ReadClock(const Json& page) {
  constexpr int64_t kMostNs = 1'000'000'000'000'000'000;
  const int64_t low_ns = NumberAt(page, "ahead_at_least_ns", INT64_MAX);
  const int64_t high_ns = NumberAt(page, "ahead_at_most_ns", INT64_MAX);
  if (low_ns < -kMostNs || high_ns > kMostNs || low_ns > high_ns) return std::nullopt;
  return ClockOffset{low_ns, high_ns};
}

// Returns when a page was made, by the local clock, as far as known.
int64_t TimeHere(const Json& page, const Files& files, const std::string& folder) {
  const auto file = files.find(absl::StrCat("endpoints/", folder, "/clock.json"));
  const std::optional<ClockOffset> clock =
      file == files.end() ? std::nullopt : ReadClock(ParseJson(file->second));
  return TimeAt(page, "time") - (clock ? clock->low_ns / 2 + clock->high_ns / 2 : 0);
}

}  // namespace

bool ReadCapture(const std::string& path, Observation* seen, std::string* error) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    *error = absl::StrCat("cannot read ", path, ": ", ErrorText(errno));
    return false;
  }
  Files files;
  const bool is_read =
      S_ISDIR(status.st_mode) ? ReadFolder(path, &files, error) : ReadArchive(path, &files, error);
  if (!is_read) return false;
  std::map<std::string, std::size_t> endpoints;
  std::size_t left = kMostPageBytes;
  for (const auto& [name, text] : files) {
    if (name == "missing.txt") {
      for (const std::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
        if (absl::StartsWith(line, "last calls") || absl::StartsWith(line, "endpoint ")) {
          seen->notes.push_back(PlainText(line));
        }
      }
      continue;
    }
    Json page = ParseJson(text, std::min(left, kMostJsonBytes));
    if (!page.is_object()) {
      seen->notes.push_back(
          absl::StrCat(PlainText(name), " of the capture is broken or too large, and left out"));
      continue;
    }
    const std::size_t bytes = JsonMemory(text).value_or(0);
    if (name == "verdict.json") {
      left -= bytes;
      seen->verdict = std::move(page);
      continue;
    }
    const std::vector<std::string> parts = absl::StrSplit(name, '/');
    if (parts.size() < 3) continue;
    const auto [endpoint, is_new] = endpoints.emplace(parts[1], endpoints.size());
    const std::size_t index = endpoint->second;
    if (is_new) {
      const std::string plain = EndpointName(parts[1]);
      seen->endpoints.push_back(PlainText(plain));
      seen->clocks.emplace_back();
      seen->communicators.emplace_back();
    }
    if (parts[2] == "communicators.json") {
      left -= bytes;
      seen->communicators[index] = std::move(page);
    } else if (parts[2] == "clock.json") {
      seen->clocks[index] = ReadClock(page);
    } else if (parts[2] == "calls" && parts.size() == 4) {
      if (seen->recording.AddCalls(index, page, TimeHere(page, files, parts[1])) == 0) {
        seen->notes.push_back(
            absl::StrCat(PlainText(name), " of the capture is broken, and left out"));
      } else {
        ++seen->looks;
      }
    }
  }
  if (endpoints.empty() && seen->verdict.is_null()) {
    *error = absl::StrCat(path,
                          " is not a capture of pulse: it has neither endpoints/ nor verdict.json");
    return false;
  }
  return true;
}

}  // namespace nccl_pulse
