// NetworkWindow decides when network steps are watched: it switches the ProxyStep bit of NCCL's
// event mask on for a small share of the time.
//
// NCCL has one mask for the whole process: its own int, whose address it passes to init and which
// it reads at each call (docs/nccl-profiler-api.md#event-mask; src/plugin/profiler.cc,
// ncclProfilerEventMask). After init only the ProxyStep bit is changed, by an atomic or / and. The
// bit affects only callbacks on the host, and tests with CUDA graphs found no fault. The KernelCh
// bit must never change while a job runs.
//
//   share          Steps are watched for 100 ms, followed by a pause that gives the share. It varies
//                  at random by up to half, so that it follows no period of the job, and ranks do
//                  not switch together. With 100 % the bit is always in the mask.
//   processes      Steps are watched only in processes with network traffic.
//   observed_ns    How long the bit really was on, read from the mask itself: NCCL 2.31's RAS can
//                  overrule a plugin's mask, and NCCL rewrites the int after each init.
//   foreign masks  A mask in which another tool has changed any other bit (mask_monitor.h) is not
//                  touched until the bits have their old values again: closing the window could undo
//                  the tool's change.
//
// Two NCCLs in one process have a mask each, switched together. Communicators of an NCCL without
// network steps are not attached.
//
// The mask's address is NCCL's, so it may be used only while a communicator lives, from init to
// finalize, and only if it is in a loaded library's own memory (LiesInALibrary, mask_monitor.h).
//
// Thread: Write, Attach and Detach from init and finalize, Tick from the background thread; they
// take a lock that no callback takes. Cost: microseconds. A forked child does not use it.
#ifndef PLUGIN_RUNTIME_NETWORK_WINDOW_H_
#define PLUGIN_RUNTIME_NETWORK_WINDOW_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace nccl_pulse {

class NetworkWindow {
 public:
  static constexpr uint64_t kLengthNs = 100000000;  // for which steps are watched at a time

  // Call once, first. `percent`: share of the time in which steps are watched; 0: never. `seed`: a
  // number that differs between processes.
  void Configure(double percent, uint64_t seed);

  // Changes the share, from 0 (never) to 100 (always). Returns false if 0 or 100 was configured, so
  // there is no mask to switch.
  bool SetShare(double percent, uint64_t now_ns);

  // True if never or always was configured, whatever SetShare has set.
  bool is_off() const { return percent_ <= 0; }
  bool is_always() const { return percent_ >= 100; }

  // Writes `value`, plus the bit if the window is open, to NCCL's mask. Ignores null.
  void Write(int* mask, uint32_t value);

  // Adds a communicator. `context`: its ticket. NCCL keeps `mask`, to which `value` was written,
  // while the communicator lives.
  void Attach(uint64_t context, int* mask, uint32_t value, uint64_t now_ns);
  // Removes a communicator. With the last one, the bit is cleared.
  void Detach(uint64_t context, uint64_t now_ns);

  // Opens or closes the window when it is due. `wanted`: there is traffic to watch. `prepare` is
  // called before each opening; while it returns false, the window stays closed.
  void Tick(uint64_t now_ns, bool wanted, const std::function<bool()>& prepare);

  // Returns how long the bit has been on, as of the last Tick.
  uint64_t observed_ns();

 private:
  struct Attached {
    uint64_t context;
    int* mask;
    int value;  // without the bit
  };

  // Adds the time since the last poll if the bit was on then and is on now.
  void Look(uint64_t now_ns);
  void Switch(bool on);
  bool IsOn() const;
  uint64_t PauseNs(uint64_t watched_ns, double from, double to);

  // Written only by Configure.
  double percent_ = 0;

  std::mutex mutex_;  // guards the fields below
  std::vector<Attached> attached_;
  double share_ = 0;  // in percent: percent_, or the value of SetShare
  uint64_t random_ = 1;
  bool open_ = false;
  bool was_on_ = false;  // at the last poll
  uint64_t last_look_ns_ = 0;
  uint64_t opened_ns_ = 0;
  uint64_t next_opening_ns_ = 0;  // 0: not planned yet
  uint64_t observed_ns_ = 0;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_NETWORK_WINDOW_H_
