// Decides when network steps are watched: switches the ProxyStep bit of NCCL's event mask on for a
// small share of the time.
//
// NCCL has one mask for the whole process: an int of its own, whose address it passes to init, and
// which it looks at with each call (docs/nccl-profiler-api.md#event-mask; src/plugin/profiler.cc,
// ncclProfilerEventMask). After init only the ProxyStep bit is ever touched, by an atomic or / and.
// Switching it changes which callbacks the host makes and nothing on the GPU, and ran clean with
// graphs. The KernelCh bit must never change while a job runs.
//
//   share          100 ms are watched, then comes a pause as long as the share asks for, give or
//                  take half of it at random: no period of the job stays in step with it, and ranks
//                  do not switch together. With 100 % the bit is in the mask from the first init
//                  on, and nothing is switched.
//   who pays       Only processes that had network traffic.
//   observed_ns    How long the bit really was on. It is measured by looking at the mask itself:
//                  NCCL 2.31's RAS can overrule a plugin's mask, and NCCL rewrites the int after
//                  each init.
//   foreign masks  A mask that somebody else has changed (in any bit: mask_watch.h) is left alone
//                  until it is as before. Closing the window would take from it what its owner
//                  asked for.
//
// Two NCCLs in one process have a mask each. They are switched together; one whose API is too old
// for network steps is not attached.
//
// Life of the mask's address. It is NCCL's, so it may be used while a communicator lives: from init
// to finalize. And only if it lies in a loaded library's own memory: what is on a stack or a heap,
// which no NCCL does, could vanish earlier.
//
// Thread: Write, Attach and Detach from init and finalize, Tick from the background thread; they
// take a lock that no callback takes. Cost: microseconds. After a fork: left alone in the child, as
// all of the runtime.
#ifndef PLUGIN_RUNTIME_NETWORK_WINDOW_H_
#define PLUGIN_RUNTIME_NETWORK_WINDOW_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace nccl_pulse {

class NetworkWindow {
 public:
  static constexpr uint64_t kLengthNs = 100000000;

  // Once, before all else. 0: never. `seed`: any number that differs between processes.
  void Configure(double percent, uint64_t seed);

  // Another share from now on, of 0 (none) to 100 (all of the time). False where that cannot be: a
  // window that began as off or as always has no mask to switch.
  bool SetShare(double percent, uint64_t now_ns);

  // As configured.
  bool is_off() const { return percent_ <= 0; }
  bool is_always() const { return percent_ >= 100; }

  // Writes `value`, and the bit if it is to be on now, to NCCL's mask. Null is passed over.
  void Write(int* mask, uint32_t value);

  // The communicator lives, and NCCL keeps `mask`, to which `value` was written, as long.
  void Attach(uint64_t context, int* mask, uint32_t value, uint64_t now_ns);
  // It ends. With the last one the bit is taken back.
  void Detach(uint64_t context, uint64_t now_ns);

  // Opens or closes the window when it is time. `wanted`: there is traffic to watch. `prepare` is
  // asked before the first opening; while it says false the window stays closed.
  void Tick(uint64_t now_ns, bool wanted, const std::function<bool()>& prepare);

  // How long the bit has been on, as of the last call.
  uint64_t observed_ns();

 private:
  struct Attached {
    uint64_t context;
    int* mask;
    int value;  // without the bit
  };

  // Adds the time since the last look if the bit was on then and is on now.
  void Look(uint64_t now_ns);
  void Switch(bool on);
  bool IsOn() const;
  uint64_t PauseNs(uint64_t watched_ns, double from, double to);

  // Written by Configure alone.
  double percent_ = 0;

  std::mutex mutex_;  // guards what follows
  std::vector<Attached> attached_;
  double share_ = 0;  // percent_, or what was set since
  uint64_t random_ = 1;
  bool open_ = false;
  bool was_on_ = false;  // at the last look
  uint64_t last_look_ns_ = 0;
  uint64_t opened_ns_ = 0;
  uint64_t next_opening_ns_ = 0;  // 0: not planned yet
  uint64_t observed_ns_ = 0;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_NETWORK_WINDOW_H_
