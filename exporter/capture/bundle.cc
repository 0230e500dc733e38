#include "exporter/capture/bundle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/base/gzip.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;    // of a tar file (POSIX.1-2001, ustar)
constexpr std::size_t kMostName = 99;  // a header has two such fields: folder and file name

std::string ErrorOf(int error) { return std::error_code(error, std::generic_category()).message(); }

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

// Keeps the beginning, so that it is still a file name.
std::string CutName(const std::string& name, std::size_t most) {
  std::string cut = name.substr(0, most);
  if (!cut.empty() && cut.back() == '/') cut.back() = '_';
  return cut;
}

bool WriteFile(const std::string& path, const std::string& content, std::string* error) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    *error = absl::StrCat("cannot write ", path, ": ", ErrorOf(errno));
    return false;
  }
  std::size_t written = 0;
  int failure = 0;
  while (written < content.size() && failure == 0) {
    const ssize_t n = write(fd, content.data() + written, content.size() - written);
    if (n < 0 && errno != EINTR) failure = errno;
    if (n > 0) written += static_cast<std::size_t>(n);
  }
  if (failure == 0 && fsync(fd) != 0 && errno != EINVAL) failure = errno;
  if (close(fd) != 0 && failure == 0) failure = errno;
  if (failure == 0) return true;
  *error = absl::StrCat("cannot write ", path, ": ", ErrorOf(failure));
  return false;
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

// Beside the target, so that a rename stays within one file system.
std::string PartialName(const std::string& path) {
  return absl::StrCat(path, ".partial-", getpid());
}

bool Publish(const std::string& partial, const std::string& path, std::string* error) {
  if (renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
    return true;
  }
  // The file system does not support such a rename.
  if ((errno == EINVAL || errno == ENOSYS) && access(path.c_str(), F_OK) != 0 &&
      rename(partial.c_str(), path.c_str()) == 0) {
    return true;
  }
  *error = errno == EEXIST
               ? absl::StrCat(path, " exists already, and is kept; choose another --out")
               : absl::StrCat("cannot name it ", path, ": ", ErrorOf(errno));
  return false;
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
  const std::string path = WithoutSlash(given);
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    *error = absl::StrCat(path, " exists already, and is kept; choose another --out");
    return false;
  }
  const std::string parent = fs::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    *error = absl::StrCat("there is no folder ", folder, "; create it");
    return false;
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    *error = absl::StrCat("cannot write into ", folder, ": ", ErrorOf(errno));
    return false;
  }
  return true;
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
    *error = absl::StrCat("cannot make ", partial, ": ", ErrorOf(errno));
    return false;
  }
  for (const auto& [name, content] : files_) {
    const fs::path file = fs::path(partial) / name;
    std::error_code problem;
    fs::create_directories(file.parent_path(), problem);
    if (problem)
      *error = absl::StrCat("cannot make ", file.parent_path().string(), ": ", problem.message());
    is_written = !problem && WriteFile(file.string(), content, error);
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
  const std::string partial = PartialName(path);
  if (WriteFile(partial, *packed, error) && Publish(partial, path, error)) return true;
  unlink(partial.c_str());
  return false;
}

}  // namespace nccl_pulse
