// The other direction of exporter/base/gzip.h, for tests.
#ifndef TESTS_EXPORTER_GUNZIP_H_
#define TESTS_EXPORTER_GUNZIP_H_

#include <zlib.h>

#include <string>

namespace nccl_pulse {

// "(broken)" for what is not one whole gzip stream.
inline std::string Gunzip(std::string packed) {
  z_stream stream = {};
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) return "(broken)";
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text(packed.size() + 1024, '\0');
  int result = Z_OK;
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(text.data()) + stream.total_out;
    stream.avail_out = static_cast<uInt>(text.size() - stream.total_out);
    result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_OK || stream.avail_out != 0) break;
    text.resize(text.size() * 2);
  }
  text.resize(stream.total_out);
  const bool whole = result == Z_STREAM_END && stream.avail_in == 0;
  inflateEnd(&stream);
  return whole ? text : "(broken)";
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_GUNZIP_H_
