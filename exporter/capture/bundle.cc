#include "exporter/capture/bundle.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/base/error_text.h"
#include "exporter/base/files.h"
#include "exporter/base/gzip.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;    // of a tar file (POSIX.1-2001, ustar)
constexpr std::size_t kMostName = 99;  // a header has two such fields: folder and file name

std::string SafeName(const std::string& name) {
  std::string safe;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '/';
    safe.push_back(is_plain ? c : '_');
  }
  for (std::size_t at = safe.find(".."); at != safe.npos; at = safe.find("..")) {
    safe.replace(at, 2, "__");
  }
  // The name is neither absolute nor a folder.
  while (!safe.empty() && safe.front() == '/') safe.erase(0, 1);
  while (!safe.empty() && safe.back() == '/') safe.pop_back();
  return safe.empty() ? "_" : safe;
}

// Cuts the name to `most` bytes, so that it is still a file name.
std::string CutName(const std::string& name, std::size_t most) {
  std::string cut = name.substr(0, most);
  if (!cut.empty() && cut.back() == '/') cut.back() = '_';
  return cut;
}

std::string TarHeader(const std::string& folder, const std::string& name, std::size_t bytes) {
  std::string block(kBlock, '\0');
  const auto put = [&block](std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000600");
  put(108, "0000000");
  put(116, "0000000");
  put(124, absl::StrFormat("%011o", bytes));
  put(136, absl::StrFormat("%011o", static_cast<int64_t>(time(nullptr))));
  put(148, "        ");
  put(156, "0");
  put(257, "ustar");
  put(263, "00");
  put(345, folder);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, absl::StrFormat("%06o", sum));
  block[154] = '\0';
  return block;
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

void Bundle::Add(const std::string& name, std::string content) {
  std::string safe = CutName(SafeName(name), kMostName);
  // A path cannot be both file and folder.
  std::vector<std::string> folders;
  for (std::size_t at = safe.find('/'); at != safe.npos; at = safe.find('/', at + 1)) {
    folders.push_back(safe.substr(0, at));
    if (names_.count(folders.back()) == 0) continue;
    std::replace(safe.begin(), safe.end(), '/', '_');
    folders.clear();
    break;
  }
  const std::string start = safe;
  for (int i = 2; names_.count(safe) + folders_.count(safe) != 0; ++i) {
    safe = absl::StrCat(CutName(start, kMostName - 8), "_", i);
  }
  names_.insert(safe);
  folders_.insert(folders.begin(), folders.end());
  bytes_ += content.size();
  files_.emplace_back(std::move(safe), std::move(content));
}

bool Bundle::IsPossible(const std::string& given, std::string* error) {
  return CanCreate(WithoutSlash(given), error);
}

bool Bundle::Write(const std::string& given, std::string* error) const {
  const std::string path = WithoutSlash(given);
  if (!IsPossible(path, error)) return false;
  return absl::EndsWith(path, ".tar.gz") || absl::EndsWith(path, ".tgz") ? WriteArchive(path, error)
                                                                         : WriteFolder(path, error);
}

bool Bundle::WriteFolder(const std::string& path, std::string* error) const {
  const std::string partial = PartialName(path);
  std::error_code ignored;
  bool is_written = mkdir(partial.c_str(), 0700) == 0;
  if (!is_written) {
    *error = absl::StrCat("cannot make ", partial, ": ", ErrorText(errno));
    return false;
  }
  for (const auto& [name, content] : files_) {
    const fs::path file = fs::path(partial) / name;
    std::error_code problem;
    fs::create_directories(file.parent_path(), problem);
    if (problem)
      *error = absl::StrCat("cannot make ", file.parent_path().string(), ": ", problem.message());
    is_written = !problem && WriteNewFile(file.string(), content, error);
    if (!is_written) break;
  }
  if (is_written && Publish(partial, path, error)) return true;
  fs::remove_all(partial, ignored);
  return false;
}

bool Bundle::WriteArchive(const std::string& path, std::string* error) const {
  std::string tar;
  const fs::path base = fs::path(path).filename();
  const std::string stem = SafeName(base.string().substr(0, base.string().find(".t")));
  const std::string folder = CutName(stem, kMostName);
  for (const auto& [name, content] : files_) {
    tar += TarHeader(folder, name, content.size());
    tar += content;
    tar.append((kBlock - content.size() % kBlock) % kBlock, '\0');
  }
  tar.append(2 * kBlock, '\0');
  const std::optional<std::string> packed = Gzip(tar);
  if (!packed.has_value()) {
    *error = "there is no memory to compress it";
    return false;
  }
  return WriteWhole(path, *packed, error);
}

}  // namespace nccl_pulse
