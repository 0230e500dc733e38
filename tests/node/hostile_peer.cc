// Hands over a segment that is made to cost its reader as much as can be, over the shipped
// hand-over, and stays connected until its standard input ends:
//
//   hostile_peer PORT SHAPE [COUNT]
//
//   labels      1024 communicators with 128 counters each, and as many static labels as fit
//   histograms  every chunk a histogram, and the longest static labels
//   calls       timed calls and long names in every place of 1024 communicators
//   small N     N histograms, as an honest process has them: what is within all limits
//
// Says "welcome" or "refused: why" once, "closed" when the server closes, and goes on waiting.
// With a fourth argument the segment claims that process id, with a fifth that communicator.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "exporter/node/handover.h"
#include "metrics/segment_layout.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {
namespace {

struct Shape {
  uint32_t communicators = kMaxCommunicators;
  uint32_t counters = 0;    // of each
  uint32_t histograms = 0;  // of each
  uint32_t chunks = 2;
  bool timed_calls = false;
  std::string labels;
};

std::string ManyLabels() {
  std::string labels;
  for (int i = 0; labels.size() + 5 < kStaticLabelsBytes; ++i) {
    for (const char c : {'a' + i % 26, 'a' + i / 26}) labels += static_cast<char>(c);
    labels += "=1,";
  }
  return labels;
}

std::string LongLabels() {
  std::string labels;
  for (char name = 'a'; name < 'h'; ++name)
    labels += std::string(1, name) + "=" + std::string(143, 'x') + ",";
  return labels;
}

bool Find(const std::string& name, uint32_t count, Shape* shape) {
  if (name == "labels") {
    shape->counters = kSeriesPerCommunicator;
    shape->chunks = kMaxCommunicators + 1;
    shape->labels = ManyLabels();
  } else if (name == "histograms") {
    shape->histograms = 64;
    shape->chunks = kMaxSegmentChunks;
    shape->labels = LongLabels();
  } else if (name == "calls") {
    shape->timed_calls = true;
    shape->labels = ManyLabels();
  } else if (name == "small") {
    shape->communicators = std::max<uint32_t>(1, (count + 99) / 100);
    shape->histograms = std::min<uint32_t>(count, 100);
    shape->chunks = shape->communicators * 101 + 1;
  } else {
    return false;
  }
  return true;
}

uint8_t* Make(const Shape& shape, int pid, uint64_t comm_id, int* fd) {
  const uint64_t records_end =
      kHeaderBytes + kNamesBytes + uint64_t{kRecordStride} * shape.communicators;
  const uint64_t chunks_offset = (records_end + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  const uint64_t bytes =
      (chunks_offset + uint64_t{kChunkBytes} * shape.chunks + 4095) / 4096 * 4096;
  *fd = memfd_create("hostile", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  if (*fd < 0 || ftruncate(*fd, static_cast<off_t>(bytes)) != 0) abort();
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd, 0);
  if (base == MAP_FAILED) abort();
  auto* start = static_cast<uint8_t*>(base);
  auto& header = *static_cast<SegmentHeader*>(base);
  header.magic = kSegmentMagic;
  header.version = kSegmentVersion;
  header.header_bytes = kHeaderBytes;
  header.total_bytes = bytes;
  header.names_offset = kHeaderBytes;
  header.communicators_offset = kHeaderBytes + kNamesBytes;
  header.chunks_offset = chunks_offset;
  header.communicator_bytes = kRecordStride;
  header.communicator_count = shape.communicators;
  header.chunk_bytes = kChunkBytes;
  header.chunk_count = shape.chunks;
  header.name_count = kMaxNames;
  header.shared_memory = 1;
  header.pid = pid;
  header.records_present.store(shape.communicators);
  CopyToShared(header.hostname, std::string(255, 'h').c_str());
  CopyToShared(header.job_id, std::string(127, 'j').c_str());
  CopyToShared(header.global_rank, std::to_string(pid).c_str());
  CopyToShared(header.static_labels, shape.labels.c_str());
  auto* names = reinterpret_cast<NameEntry*>(start + kHeaderBytes);
  for (int id = 0; id < kMaxNames; ++id) {
    NameText name;
    CopyToShared(name.text, std::string(23, 'n') + std::to_string(id));
    names[id].Fill(name);
  }
  uint16_t chunk = 1;
  for (uint32_t index = 0; index < shape.communicators; ++index) {
    auto& record = *reinterpret_cast<CommunicatorRecord*>(start + kHeaderBytes + kNamesBytes +
                                                          index * kRecordStride);
    record.comm_id.store(comm_id + index);
    record.rank.store(0);
    record.nranks.store(8);
    CopyToShared(record.name, std::string(127, 'c').c_str());
    CopyToShared(record.uuid, std::string(47, 'u').c_str());
    record.life.Publish();
    for (uint32_t i = 0; i < shape.histograms && chunk < shape.chunks; ++i, ++chunk) {
      record.series[i].key.store(
          SeriesKey::Latency(i % kMaxNames, i / kMaxNames, LatencyKind::kDurationStream));
      record.series[i].chunk[0].store(chunk);
      auto& histogram =
          *reinterpret_cast<HistogramChunk*>(start + chunks_offset + uint64_t{chunk} * kChunkBytes);
      for (int cell = 100; cell < 140; ++cell) histogram.cells[cell].store(1000000 + i);
    }
    if (shape.counters > 0) {
      record.lanes[0].counter_chunk.store(chunk);
      auto& counters =
          *reinterpret_cast<CounterChunk*>(start + chunks_offset + uint64_t{chunk++} * kChunkBytes);
      for (uint32_t i = 0; i < shape.counters; ++i) {
        record.series[i].key.store(SeriesKey::Calls(i % kMaxNames, i % 8, i % 7, false));
        counters.series[i].a.store(1000000 + i);
      }
    }
    for (uint32_t i = 0; shape.timed_calls && i < kTimedCalls; ++i) {
      record.timed_calls[i].Write(i, {i, LatencyKind::kDurationStream, 0, 0, 0, 1000, 0});
    }
  }
  if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) abort();
  return start;
}

int Main(int argc, char** argv) {
  Shape shape;
  if (argc < 3 || !Find(argv[2], argc > 3 ? static_cast<uint32_t>(atoi(argv[3])) : 100, &shape)) {
    std::cerr << "usage: hostile_peer PORT labels|histograms|calls|small [COUNT [PID [COMM]]]\n";
    return 2;
  }
  int fd = -1;
  const int pid = argc > 4 ? atoi(argv[4]) : getpid();
  const uint64_t comm_id = argc > 5 ? strtoull(argv[5], nullptr, 16) : uint64_t(pid) << 32;
  Make(shape, pid, comm_id, &fd);
  const ListenAddress address{"", static_cast<uint16_t>(atoi(argv[1])), ""};
  SharedDescriptor connection;
  // The user's own server, or root's agent.
  if (ConnectTo(HandoverName(geteuid(), address), geteuid(), &connection) != 0 &&
      ConnectTo(HandoverName(0, address), 0, &connection) != 0) {
    std::cout << "nobody serves" << std::endl;
    return 1;
  }
  Send(connection.get(), MakeMessage(MessageType::kHello), fd);
  bool open = true;
  while (true) {
    pollfd polled[2] = {{STDIN_FILENO, POLLIN, 0}, {open ? connection.get() : -1, POLLIN, 0}};
    if (poll(polled, 2, -1) < 0 || polled[0].revents != 0) return 0;
    HandoverMessage message;
    SharedDescriptor none;
    std::string error;
    switch (Receive(connection.get(), &message, &none, &error)) {
      case Received::kMessage:
        if (message.type == MessageType::kWelcome) std::cout << "welcome" << std::endl;
        if (message.type == MessageType::kRefused) {
          std::cout << "refused: " << message.Text() << std::endl;
        }
        break;
      case Received::kNothing:
        break;
      default:
        std::cout << "closed" << std::endl;
        open = false;
    }
  }
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
