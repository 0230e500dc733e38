#include "plugin/replay/trace_file.h"

#include <dirent.h>
#include <lzma.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kDecoderMemoryBytes = 256u << 20;  // more than xz -9 needs

std::string Reason() { return std::generic_category().message(errno); }

std::optional<std::string> ReadFile(const std::string& path, ReplayError* error) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) {
    *error = {kReplayNoFolder, absl::StrCat("cannot open ", path, ": ", Reason())};
    return std::nullopt;
  }
  std::string content;
  char buffer[1 << 16];
  size_t size;
  while ((size = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) {
    content.append(buffer, size);
  }
  if (std::ferror(file.get()) != 0) {
    *error = {kReplayNoFolder, absl::StrCat("cannot read ", path, ": ", Reason())};
    return std::nullopt;
  }
  return content;
}

std::optional<std::string> Decompress(const std::string& path, const std::string& compressed,
                                      ReplayError* error) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kDecoderMemoryBytes, LZMA_CONCATENATED) != LZMA_OK) {
    *error = {kReplayNoFolder, "no memory for the xz decoder"};
    return std::nullopt;
  }
  std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
  stream.next_in = reinterpret_cast<const uint8_t*>(compressed.data());
  stream.avail_in = compressed.size();
  std::string text;
  std::unique_ptr<uint8_t[]> buffer(new uint8_t[1 << 16]);
  for (lzma_ret result = LZMA_OK; result != LZMA_STREAM_END;) {
    stream.next_out = buffer.get();
    stream.avail_out = 1 << 16;
    result = lzma_code(&stream, LZMA_FINISH);
    text.append(reinterpret_cast<const char*>(buffer.get()), (1 << 16) - stream.avail_out);
    if (result != LZMA_OK && result != LZMA_STREAM_END) {
      *error = {kReplayBrokenTrace, absl::StrCat(path, ": not a whole xz file (liblzma status ",
                                                 static_cast<int>(result), ")")};
      return std::nullopt;
    }
  }
  return text;
}

}  // namespace

std::optional<std::string> ReadTraceText(const std::string& path, ReplayError* error) {
  std::optional<std::string> content = ReadFile(path, error);
  if (!content || !absl::EndsWith(path, ".xz")) return content;
  return Decompress(path, *content, error);
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
  while (const dirent* entry = readdir(entries.get())) {  // NOLINT(concurrency-mt-unsafe)
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
