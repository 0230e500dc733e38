// Bundle collects files and writes them as one folder or .tar.gz. It writes beside the final name
// first, so that name has all files or none. Existing files are never overwritten.
//
// Thread: one. Errors: `error` is a readable sentence; nothing is left behind then.
#ifndef EXPORTER_CAPTURE_BUNDLE_H_
#define EXPORTER_CAPTURE_BUNDLE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nccl_pulse {

class Bundle {
 public:
  // Adds a file. `name` may contain folders: "calls/00ab.json". Unsafe characters of a path are
  // replaced, and the name is cut to 99 bytes; it stays unique.
  void Add(const std::string& name, std::string content);
  std::size_t size() const { return files_.size(); }
  std::size_t bytes() const { return bytes_; }

  // Writes a .tar.gz if the path ends like one, else a folder.
  bool Write(const std::string& path, std::string* error) const;
  // True if Write could begin now. Call before querying endpoints.
  static bool IsPossible(const std::string& path, std::string* error);

 private:
  bool WriteFolder(const std::string& path, std::string* error) const;
  bool WriteArchive(const std::string& path, std::string* error) const;

  std::vector<std::pair<std::string, std::string>> files_;
  std::set<std::string> names_, folders_;
  std::size_t bytes_ = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_BUNDLE_H_
