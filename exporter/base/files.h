// Opens and reads files that a user or the environment names, and writes new files.
//
// A path to read can name a FIFO without a writer, a device, or a file on an unresponsive file
// system (NFS whose server is gone). So files are opened without blocking, and only regular files
// are accepted. ReadRegularFile reads on a separate thread, and waits for it at most kFilePatience.
//
// WriteWhole writes a file that appears under its name only when it is complete. It never
// overwrites. A folder: create PartialName(path), fill it with WriteNewFile, then Publish it.
//
// Thread: any. Errors: of reading a clause for a person, without the path; else a sentence.
#ifndef EXPORTER_BASE_FILES_H_
#define EXPORTER_BASE_FILES_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace nccl_pulse {

inline constexpr std::chrono::seconds kFilePatience{3};

// Opens a file as open(2) does with `flags`, close-on-exec. Returns the descriptor, or -1. Never
// waits for a FIFO; an unresponsive file system still blocks the caller.
int OpenRegularFile(const std::string& path, int flags, mode_t mode, std::string* error);

// Reads the whole file. Returns false if it is larger than `limit` bytes or cannot be read in time.
bool ReadRegularFile(const std::string& path, std::size_t limit, std::string* text,
                     std::string* error);

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

#endif  // EXPORTER_BASE_FILES_H_
