// Chained forwards NCCL's callbacks to this plugin and to a second profiler plugin, called the next
// profiler (NCCL_PULSE_NEXT_PLUGIN=/path/lib.so), because NCCL loads only one.
//
//   NCCL ──► Chained<V> ──► ours (plugin/adapter), as if it were alone
//                      └──► the next profiler: the calls that NCCL would make to it
//
// Without the variable none of this runs: at load time, Connect puts Chained's functions into the
// exported structures only if the variable is set. NCCL reads the structures later.
//
// The next profiler gets:
//   version   calls in the newest API version that it and NCCL support (next_library.h), with that
//             version's descriptors
//   context   the context that its own init stored, even if null
//   mask      an int of its own. NCCL's mask is the union of our mask and of this int after the
//             first init. Each profiler gets only the events that its own mask would enable. Bits
//             that the next profiler clears later take effect; bits that it sets later do not.
//   handles   its own handles, in stops, states and parents. Null for a handle of another process
//             (PXN), or for a handle older than handle_pairs.h keeps.
// If its init fails or throws, it gets no events of that communicator.
//
// If the next profiler requests network steps, NCCL reports all of them. NetworkWindow then
// switches a mask of our own (our_mask_) instead of NCCL's, and MaskMonitor does not notice changes
// of NCCL's mask by other tools.
//
// Thread: as NCCL's. init takes a lock to load the library; the callbacks take none. Cost of an
// event: a copy of the descriptor, up to three look-ups, and each plugin's own.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plugin/abi/implied_events.h"
#include "plugin/abi/profiler_v1.h"
#include "plugin/abi/profiler_v2.h"
#include "plugin/abi/profiler_v3.h"
#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"
#include "plugin/adapter/adapter.h"
#include "plugin/next/handle_pairs.h"
#include "plugin/next/next_library.h"
#include "plugin/runtime/log.h"
#include "plugin/runtime/other_events.h"

extern "C" {
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v1::Profiler> ncclProfiler_v1;
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v2::Profiler> ncclProfiler_v2;
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v3::Profiler> ncclProfiler_v3;
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v4::Profiler> ncclProfiler_v4;
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v5::Profiler> ncclProfiler_v5;
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v6::Profiler> ncclProfiler_v6;
NCCL_PULSE_EXPORT extern nccl_pulse::Exported<nccl_pulse::abi::v7::Profiler> ncclProfiler_v7;
}  // extern "C"

namespace nccl_pulse {
namespace {

constexpr uint32_t kMostContexts = 4096;
constexpr char kVariable[] = "NCCL_PULSE_NEXT_PLUGIN";

HandlePairs<15, 1 << 16> g_handles;
HandlePairs<14, kMostContexts> g_contexts;

// Taken by init and finalize. Never destroyed: both may be called while the process exits.
std::mutex g_lock;
// Guarded by g_lock, except that a loaded library is read without it.
NextLibrary g_library;
bool g_was_loaded = false, g_is_good = false;
std::array<bool, kMostContexts> g_is_used{};  // slots of g_contexts
uint32_t g_last_slot = 0;
abi::ByVersion<const void*> g_own{};  // the structures that this library exports

// Returns the two profilers' handles for a handle from NCCL. Our plugin gets unknown handles, and
// counts them as unknown.
HandlePair HandleOf(const void* handle) {
  const uint64_t value = TicketOf(handle);
  if (!g_handles.IsTicketOrPair(value)) return {0, value, value != 0};
  HandlePair pair;
  if (g_handles.Find(value, &pair)) return pair;
  return {value, 0, false};
}
HandlePair ContextOf(const void* context) {
  HandlePair pair;
  if (g_contexts.Find(TicketOf(context), &pair)) return pair;
  return {TicketOf(context), 0, false};
}

void* Join(const void* ours, const void* next) {
  const uint64_t our_handle = TicketOf(ours), next_handle = TicketOf(next);
  if (next_handle == 0) return PointerOf(our_handle);
  if (our_handle == 0 && !g_handles.IsTicketOrPair(next_handle)) return PointerOf(next_handle);
  return PointerOf(g_handles.Put({our_handle, next_handle, true}));
}

bool IsKnown(uint64_t type) { return type != 0 && type < 1 << 16 && (type & (type - 1)) == 0; }

// Relaxed, as NCCL reads and writes a mask: it orders nothing.
uint32_t Load(const int* mask) {
  return static_cast<uint32_t>(__atomic_load_n(mask, __ATOMIC_RELAXED));
}

// Calls a function of the next profiler. Catches its exceptions.
template <typename Function, typename... Arguments>
int CallNext(Function* function, Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (...) {
    return -1;
  }
}

void Say(bool is_warning, abi::DebugLogger logger, const std::string& text) {
  static const Log kLog;
  if (is_warning) {
    kLog.Warn(logger, text);
  } else {
    kLog.Info(logger, text);
  }
}

// Returns true if the next profiler is usable. Loads it at the first call. Requires g_lock.
bool IsThere(abi::DebugLogger logger) {
  if (g_was_loaded) return g_is_good;
  g_was_loaded = true;
  const char* const path = getenv(kVariable);
  std::string error = "the variable was unset";
  g_is_good = path != nullptr && g_library.Load(path, g_own, &error);
  if (!g_is_good) {
    Say(true, logger, absl::StrCat(kVariable, ": ", error, ". No second profiler is called"));
  }
  const auto mix = (static_cast<uint64_t>(getpid()) ^ TicketOf(&error)) * 0x9e3779b97f4a7c15ULL;
  const auto process = std::max(static_cast<uint32_t>(mix >> (64 - Ticket::kProcessBits)), 1u);
  g_handles.Begin(process);
  g_contexts.Begin(process);
  return g_is_good;
}

// Returns the context that NCCL gets in place of the two plugins' contexts; null if there is no
// room. Requires g_lock.
void* JoinContexts(const void* ours, const void* next) {
  for (uint32_t i = 0; i < kMostContexts; ++i) {
    g_last_slot = (g_last_slot + 1) % kMostContexts;
    if (g_is_used[g_last_slot]) continue;
    g_is_used[g_last_slot] = true;
    return PointerOf(g_contexts.PutAt(g_last_slot, {TicketOf(ours), TicketOf(next), true}));
  }
  return nullptr;
}

template <typename Profiler>
struct TypesOf;
template <typename I, typename D, typename S>
struct TypesOf<abi::ProfilerTable<I, D, S>> {
  using Init = I;
  using Descriptor = D;
  using StateArgs = S;
};

template <typename Descriptor>
auto GroupOf(Descriptor* descriptor, int /*preferred*/)
    -> std::enable_if_t<sizeof(descriptor->coll.parentGroup) != 0, void**> {
  if (descriptor->type == abi::kEventColl) return &descriptor->coll.parentGroup;
  if (descriptor->type == abi::kEventP2p) return &descriptor->p2p.parentGroup;
  return nullptr;
}
template <typename Descriptor>
void** GroupOf(Descriptor* /*descriptor*/, long /*before v5*/) {
  return nullptr;
}

template <int kVersion, typename Profiler>
class Chained {
  static_assert(kVersion <= abi::kNewestVersion, "raise kNewestVersion in plugin/abi/common.h");
  using Descriptor = typename TypesOf<Profiler>::Descriptor;
  using StateArgs = typename TypesOf<Profiler>::StateArgs;

 public:
  static void Connect(Exported<Profiler>* exported) {
    ours_ = exported->profiler;
    g_own[kVersion] = exported;
    Profiler& profiler = exported->profiler;
    if constexpr (kVersion >= 5) {
      profiler.init = &InitV5;
    } else if constexpr (kVersion == 4) {
      profiler.init = &InitV4;
    } else {
      profiler.init = &InitV1;
    }
    profiler.startEvent = &Start;
    profiler.stopEvent = &Stop;
    profiler.recordEventState = &Record;
    profiler.finalize = &Finalize;
  }

 private:
  static int InitV1(void** context, int* mask) {
    return InitBoth(context, mask, {kVersion, 0, nullptr, 0, 0, -1, nullptr},
                    [](void** ours, int* our_mask) {
                      if constexpr (kVersion < 4) ours_.init(ours, our_mask);
                    });
  }
  static int InitV4(void** context, int* mask, const char* comm_name, uint64_t comm_hash,
                    int nnodes, int nranks, int rank, abi::DebugLogger logger) {
    return InitBoth(context, mask, {4, comm_hash, comm_name, nnodes, nranks, rank, logger},
                    [&](void** ours, int* our_mask) {
                      if constexpr (kVersion == 4) {
                        ours_.init(ours, our_mask, comm_name, comm_hash, nnodes, nranks, rank,
                                   logger);
                      }
                    });
  }
  static int InitV5(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
                    int nranks, int rank, abi::DebugLogger logger) {
    return InitBoth(context, mask, {kVersion, comm_id, comm_name, nnodes, nranks, rank, logger},
                    [&](void** ours, int* our_mask) {
                      if constexpr (kVersion >= 5) {
                        ours_.init(ours, comm_id, our_mask, comm_name, nnodes, nranks, rank,
                                   logger);
                      }
                    });
  }

  template <typename InitOurs>
  static int InitBoth(void** context, int* mask, const InitArguments& arguments,
                      InitOurs init_ours) {
    void* next_context = nullptr;
    const bool has_next = InitNext(&next_context, arguments);
    // Ours gets NCCL's own address: the search for its counter starts there (work_search.h).
    init_ours(context, has_steps_ ? &our_mask_ : mask);
    void* const our_context = context != nullptr ? *context : nullptr;
    if (mask != nullptr) {
      const uint32_t ours = has_steps_ ? own_events[kVersion].load() : 0;
      __atomic_fetch_or(mask, static_cast<int>(next_events_ | ours), __ATOMIC_RELAXED);
    }
    void* joined = nullptr;
    if (has_next) {
      const std::lock_guard<std::mutex> lock(g_lock);
      joined = JoinContexts(our_context, next_context);
    }
    if (has_next && joined == nullptr) {
      Say(true, arguments.logger,
          absl::StrCat(kVariable, ": no room for another communicator. It has no second profiler"));
      CallNext(Next()->finalize, next_context);
    }
    if (joined != nullptr && context != nullptr) *context = joined;
    return abi::kSuccess;
  }

  static bool InitNext(void** context, const InitArguments& arguments) {
    {
      const std::lock_guard<std::mutex> lock(g_lock);
      if (!IsThere(arguments.logger)) return false;
      if (!was_met_) {
        was_met_ = true;
        next_version_.store(g_library.VersionFor(kVersion));
        if (next_version_ == 0) {
          Say(true, arguments.logger,
              absl::StrCat(kVariable, ": it has profiler API ", g_library.Versions(),
                           ", but this NCCL needs v", kVersion, ". No second profiler is called"));
        }
      }
    }
    const int version = next_version_;
    if (version == 0) return false;
    const auto& [api_version, comm_id, comm_name, nnodes, nranks, rank, logger] = arguments;
    // NCCL's type for each version.
    auto* const init = reinterpret_cast<void*>(Next()->init);
    const int result =
        version >= 5   ? CallNext(reinterpret_cast<abi::v5::Init*>(init), context, comm_id,
                                  &next_mask_, comm_name, nnodes, nranks, rank, logger)
        : version == 4 ? CallNext(reinterpret_cast<abi::v4::Init*>(init), context, &next_mask_,
                                  comm_name, comm_id, nnodes, nranks, rank, logger)
                       : CallNext(reinterpret_cast<abi::v1::Init*>(init), context, &next_mask_);
    // As NCCL does. Relaxed: see Load.
    const uint32_t enforced = abi::Enforced(Load(&next_mask_) & abi::EventsOfVersion(version));
    __atomic_fetch_or(&next_mask_, static_cast<int>(enforced), __ATOMIC_RELAXED);
    const std::lock_guard<std::mutex> lock(g_lock);
    if (result != abi::kSuccess) {
      if (!std::exchange(has_failed_, true)) {
        Say(true, logger,
            absl::StrCat(kVariable, ": its init failed. The communicator has no second profiler"));
      }
      return false;
    }
    if (!std::exchange(is_known_, true)) {
      const uint32_t events = Load(&next_mask_) & abi::EventsOfVersion(version);
      const bool has_steps = (events & (abi::kEventProxyStep | abi::kEventNetPlugin)) != 0;
      if (!has_steps) other_events[kVersion].store(events);
      next_events_.store(events);
      has_steps_.store(has_steps);
      const char* const name = Next()->name;
      Say(false, logger,
          absl::StrCat(kVariable, ": ", name != nullptr ? name : "a profiler without a name",
                       " is also called (profiler API v", version, ", event mask 0x",
                       absl::Hex(events), ")"));
    }
    return true;
  }

  static int Start(void* context, void** handle, Descriptor* descriptor) {
    const HandlePair contexts = ContextOf(context);
    void* const our_context = PointerOf(contexts.ours);
    if (descriptor == nullptr || handle == nullptr) {
      return ours_.startEvent(our_context, handle, descriptor);
    }
    Descriptor event = *descriptor;
    const HandlePair parents = HandleOf(event.parentObj);
    void** const group = GroupOf(&event, 0);
    const HandlePair groups = group != nullptr ? HandleOf(*group) : HandlePair();
    void* ours = nullptr;
    // Our plugin gets unknown types, and counts them as unknown.
    if (!IsKnown(event.type) || (abi::BitsThatBring(event.type) & OurMask()) != 0) {
      event.parentObj = PointerOf(parents.ours);
      if (group != nullptr) *group = PointerOf(groups.ours);
      ours_.startEvent(our_context, &ours, &event);
    }
    void* next = nullptr;
    if (IsForNext(event, contexts, parents)) {
      event.parentObj = PointerOf(parents.next);
      if (group != nullptr) {
        *group = PointerOf(groups.next);
        // Before v5 an operation belongs to its group.
        if (next_version_ < 5) event.parentObj = *group;
      }
      CallNext(Next()->startEvent, PointerOf(contexts.next), &next, static_cast<void*>(&event));
    }
    *handle = Join(ours, next);
    return abi::kSuccess;
  }

  static bool IsForNext(const Descriptor& event, const HandlePair& contexts,
                        const HandlePair& parents) {
    const int version = next_version_;
    if (version == 0 || !IsKnown(event.type)) return false;
    const uint32_t events = abi::EventsOfVersion(version);
    const uint32_t mask = Load(&next_mask_) & events;
    if ((event.type & events) == 0 || (abi::BitsThatBring(event.type) & mask) == 0) return false;
    if (contexts.has_next) return true;
    // The context belongs to another process (PXN), or to a communicator whose init failed in the
    // next profiler.
    if (event.type == abi::kEventProxyOp) return event.proxyOp.pid != getpid();
    return parents.next != 0;
  }

  static int Stop(void* handle) {
    const HandlePair pair = HandleOf(handle);
    if (pair.ours != 0 || handle == nullptr) ours_.stopEvent(PointerOf(pair.ours));
    if (pair.next != 0 && next_version_ != 0) CallNext(Next()->stopEvent, PointerOf(pair.next));
    return abi::kSuccess;
  }

  static int Record(void* handle, int state, StateArgs* args) {
    const HandlePair pair = HandleOf(handle);
    if (pair.ours != 0 || handle == nullptr) {
      ours_.recordEventState(PointerOf(pair.ours), state, args);
    }
    if (pair.next != 0 && next_version_ != 0) {
      CallNext(Next()->recordEventState, PointerOf(pair.next), state, static_cast<void*>(args));
    }
    return abi::kSuccess;
  }

  static int Finalize(void* context) {
    const HandlePair contexts = ContextOf(context);
    ours_.finalize(PointerOf(contexts.ours));
    if (!contexts.has_next) return abi::kSuccess;
    {
      const std::lock_guard<std::mutex> lock(g_lock);
      // NCCL may finalize a context twice.
      if (!std::exchange(g_is_used[TicketOf(context) % kMostContexts], false)) return abi::kSuccess;
    }
    CallNext(Next()->finalize, PointerOf(contexts.next));
    return abi::kSuccess;
  }

  // Returns the events that NCCL would make if this plugin were alone. The network window switches
  // steps on and off in NCCL, so any step that arrives here is ours.
  static uint32_t OurMask() {
    return has_steps_ ? Load(&our_mask_) : own_events[kVersion].load() | abi::kEventProxyStep;
  }

  static abi::AnyProfiler* Next() { return g_library.profiler(next_version_); }

  static inline Profiler ours_{};  // as exported without a next plugin; written only by Connect
  // Like NCCL's mask: ints in a library's memory, which a plugin may write at any time.
  static inline int next_mask_ = 0;
  static inline int our_mask_ = 0;  // used if has_steps_
  static inline Relaxed<int> next_version_{0};
  static inline Relaxed<uint32_t> next_events_{0};
  static inline Relaxed<bool> has_steps_{false};
  static inline bool was_met_ = false, is_known_ = false, has_failed_ = false;  // guarded by g_lock
};

// Makes the lock free in a forked child, where the thread that held it does not exist.
void RenewLock() { new (&g_lock) std::mutex(); }

[[gnu::constructor]] void ConnectIfAsked() {
  const char* const path = getenv(kVariable);
  if (path == nullptr || path[0] == '\0') return;
  pthread_atfork(nullptr, nullptr, RenewLock);
  Chained<1, abi::v1::Profiler>::Connect(&ncclProfiler_v1);
  Chained<2, abi::v2::Profiler>::Connect(&ncclProfiler_v2);
  Chained<3, abi::v3::Profiler>::Connect(&ncclProfiler_v3);
  Chained<4, abi::v4::Profiler>::Connect(&ncclProfiler_v4);
  Chained<5, abi::v5::Profiler>::Connect(&ncclProfiler_v5);
  Chained<6, abi::v6::Profiler>::Connect(&ncclProfiler_v6);
  Chained<7, abi::v7::Profiler>::Connect(&ncclProfiler_v7);
}

}  // namespace
}  // namespace nccl_pulse
