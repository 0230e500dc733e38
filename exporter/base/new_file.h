// WriteWhole writes a file that appears under its name only when it is complete. It never
// overwrites.
//
// A folder: create PartialName(path), fill it with WriteNewFile, then Publish it.
//
// Thread: any. Errors: `error` is a readable sentence.
#ifndef EXPORTER_BASE_NEW_FILE_H_
#define EXPORTER_BASE_NEW_FILE_H_

#include <string>

namespace nccl_pulse {

// True if `path` does not exist and its folder is writable. Call before expensive work.
bool CanCreate(const std::string& path, std::string* error);

// Writes the whole file. Returns false on failure, and leaves nothing behind.
bool WriteWhole(const std::string& path, const std::string& content, std::string* error);

// Returns a name beside the target, so that Publish stays within one file system.
std::string PartialName(const std::string& path);
bool WriteNewFile(const std::string& path, const std::string& content, std::string* error);
bool Publish(const std::string& partial, const std::string& path, std::string* error);

// Writes `content`, syncs and closes `fd`. -1: the file could not be opened, and errno has the
// reason.
bool WriteAndClose(int fd, const std::string& path, const std::string& content, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_NEW_FILE_H_
