// Files that are to be written together, as a folder or as a .tar.gz. Under the final name there is
// all of it or nothing: it is written beside it first. What exists is never written over.
//
// Thread: one. Errors: `error` says what went wrong, for a person; nothing is left behind then.
#ifndef EXPORTER_CAPTURE_BUNDLE_H_
#define EXPORTER_CAPTURE_BUNDLE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nccl_pulse {

class Bundle {
 public:
  // `name` may have folders in it: "calls/00ab.json". Letters of it that could steer a path are
  // replaced, and it is cut to 99; it stays different from the others.
  void Add(const std::string& name, std::string content);
  std::size_t size() const { return files_.size(); }
  std::size_t bytes() const { return bytes_; }

  // A .tar.gz where the path ends like one, else a folder.
  bool Write(const std::string& path, std::string* error) const;
  // Says whether Write could begin now, before anything is asked.
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
