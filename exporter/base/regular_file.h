// Opens and reads files that a user or the environment names.
//
// Such a path can name a FIFO without a writer, a device, or a file on an unresponsive file system
// (NFS whose server is gone). So files are opened without blocking, and only regular files are
// accepted. ReadRegularFile reads on a separate thread, and waits for it at most kFilePatience.
//
// Thread: any. Errors: a clause for a person, without the path.
#ifndef EXPORTER_BASE_REGULAR_FILE_H_
#define EXPORTER_BASE_REGULAR_FILE_H_

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

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_REGULAR_FILE_H_
