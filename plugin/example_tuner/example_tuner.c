// An example of a tuner plugin (NCCL's tuner API v5, NCCL 2.28.3 or later) that asks NCCL Pulse how long
// AllReduces took, and leaves settings that are slow. docs/tuners.md
//
//   EXAMPLE_TUNER_SETTINGS=default,ring:ll,ring:simple   are tried in this order for each size class;
//                                                        the fastest one stays
//
// All ranks must choose the same for the same call, or the job hangs. But their durations differ, and so
// do the moments at which they learn of them. So ranks decide by one memory of the node:
//
//   calls of a kind, as NCCL asks for them   0 ...... 255 | 256 ...... 511 | 512 ...
//   decisions[block]                         1 (go on)    | 1              | 1 + ns: it took so long
//
// The rank that comes to a block first writes what it knows, by one compare-and-swap. Every rank reads
// that value before the block's first call, so each takes the same steps. Nobody waits.
// A communicator over several nodes, or with a rank that does not see the memory, keeps NCCL's choice.
//
// The number of calls is NCCL Pulse's call number if each call has its own group. A communicator must not
// be used with ncclGroupSimulateEnd, which asks a tuner for calls that only one rank may make.
//
// Source: NCCL 2.28.9, src/include/plugin/tuner/tuner_v5.h; src/init.cc, initTransportsRank (all ranks of
// a node have been in Init before any rank makes a call); src/enqueue.cc, getAlgoInfo.
// Thread: NCCL's, one at a time for a communicator. Cost of GetCollInfo: nanoseconds; no system call
// after the first one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/abi/pulse_query.h"

typedef void Logger(int level, unsigned long flags, const char* file, int line, const char* format,
                    ...);
enum { kSuccess = 0, kLogInfo = 3, kSubsystemInit = 0x1, kAllReduce = 4 };  // NCCL's

enum { kSizeClasses = 11, kBlock = 256, kBlocks = 1024, kMostSettings = 16, kEnoughCalls = 2 };
enum { kKeep = 1 };

static const char* const kAlgorithms[] = {
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
static const char* const kProtocols[] = {"ll", "ll128", "simple"};

typedef struct {
  char name[32];
  int algorithm, protocol;  // -1: NCCL's choice
} Setting;

typedef struct {
  _Atomic uint64_t attached;  // ranks
  _Atomic uint64_t decisions[kSizeClasses][kBlocks];
} Shared;

// Each size class has one. The first part is the same on all ranks at the same call.
typedef struct {
  uint64_t calls, since;  // the current setting's first call
  int setting, best, is_over;
  uint64_t best_ns;
  // What this rank knows of the current setting.
  int known_calls;
  uint64_t last_known_call, least_ns;
} Kind;

typedef struct {
  uint64_t comm;
  size_t nranks;
  int is_on;  // -1: not yet known
  Logger* log;
  ncclPulseQuery_v1_t* query;
  char path[64];
  Shared* shared;
  Setting settings[kMostSettings];
  int nsettings;
  Kind kinds[kSizeClasses];
} Tuner;

static int FindName(const char* const* names, int count, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (strcasecmp(names[i], name) == 0) return i;
  }
  return -1;
}

// Returns 0 if the text is no list of settings.
static int ReadSettings(Tuner* tuner, const char* text) {
  char copy[256];
  if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy)) return 0;
  char* rest = NULL;
  for (char* one = strtok_r(copy, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
    if (tuner->nsettings == kMostSettings) return 0;
    Setting* const setting = &tuner->settings[tuner->nsettings++];
    snprintf(setting->name, sizeof(setting->name), "%s", one);
    setting->algorithm = setting->protocol = -1;
    if (strcasecmp(one, "default") == 0) continue;
    char* const colon = strchr(one, ':');
    if (colon == NULL) return 0;
    *colon = '\0';
    setting->algorithm = FindName(kAlgorithms, 7, one);
    setting->protocol = FindName(kProtocols, 3, colon + 1);
    if (setting->algorithm < 0 || setting->protocol < 0) return 0;
  }
  return tuner->nsettings > 0;
}

// Ranks with other settings have another memory, and so are missing.
static Shared* Attach(Tuner* tuner, const char* text) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (; *text != '\0'; ++text) hash = (hash ^ (unsigned char)*text) * 16777619u;
  snprintf(tuner->path, sizeof(tuner->path), "/example-tuner-%016llx-%08x",
           (unsigned long long)tuner->comm, hash);
  const int fd = shm_open(tuner->path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return NULL;
  // Not ftruncate: without room the first access would be a SIGBUS.
  void* memory = MAP_FAILED;
  if (posix_fallocate(fd, 0, sizeof(Shared)) == 0) {
    memory = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (memory == MAP_FAILED) return NULL;
  atomic_fetch_add(&((Shared*)memory)->attached, 1);
  return memory;
}

static int Init(void** context, uint64_t comm, size_t nranks, size_t nnodes, Logger* log,
                void* domains, void* constants) {
  (void)domains, (void)constants;
  *context = NULL;
  const char* const variable = getenv("EXAMPLE_TUNER_SETTINGS");
  const char* const text = variable != NULL ? variable : "default,ring:ll,ring:ll128,ring:simple";
  Tuner* const tuner = nnodes == 1 && nranks > 1 ? calloc(1, sizeof(Tuner)) : NULL;
  if (tuner == NULL) return kSuccess;
  *tuner = (Tuner){.comm = comm, .nranks = nranks, .is_on = -1, .log = log};
  if (ReadSettings(tuner, text)) {
    tuner->shared = Attach(tuner, text);
  } else {
    log(kLogInfo, kSubsystemInit, __FILE__, __LINE__,
        "example tuner: \"%s\" is not a list such as default,ring:ll", text);
  }
  // A profiler is loaded before a tuner.
  void* const pulse = dlopen("libnccl-profiler-pulse.so", RTLD_NOW | RTLD_NOLOAD);
  if (pulse != NULL) tuner->query = (ncclPulseQuery_v1_t*)dlsym(pulse, "ncclPulseQuery_v1");
  *context = tuner;
  return kSuccess;
}

// What this rank says at a block: kKeep, or 1 + the nanoseconds of the current setting.
static uint64_t Propose(const Tuner* tuner, Kind* kind, size_t bytes) {
  ncclPulseDurations_v1_t durations;
  if (tuner->query == NULL ||
      tuner->query(tuner->comm, "AllReduce", bytes, &durations) != ncclPulseOk)
    return kKeep;
  const int is_new = durations.agreed_ns != 0 && durations.agreed_call >= kind->since &&
                     durations.agreed_call < kind->calls &&
                     durations.agreed_call != kind->last_known_call;
  if (!is_new) return kKeep;
  kind->last_known_call = durations.agreed_call;
  // Durations contain waiting for other ranks: the least one has least of it.
  if (kind->known_calls++ == 0 || durations.agreed_ns < kind->least_ns)
    kind->least_ns = durations.agreed_ns;
  return kind->known_calls < kEnoughCalls ? kKeep : 1 + kind->least_ns;
}

static void Follow(const Tuner* tuner, Kind* kind, int size_class, uint64_t decision) {
  if (decision == kKeep) return;
  const uint64_t took_ns = decision - 1;
  const char* const name = tuner->settings[kind->setting].name;
  if (kind->best_ns == 0 || took_ns < kind->best_ns) {
    kind->best_ns = took_ns;
    kind->best = kind->setting;
  }
  kind->is_over = kind->setting + 1 == tuner->nsettings;
  kind->setting = kind->is_over ? kind->best : kind->setting + 1;
  kind->since = kind->calls;
  kind->known_calls = 0;
  tuner->log(kLogInfo, kSubsystemInit, __FILE__, __LINE__,
             "example tuner: comm %016llx size class %d call %llu: %s took %llu ns; %s %s",
             (unsigned long long)tuner->comm, size_class, (unsigned long long)kind->calls, name,
             (unsigned long long)took_ns, kind->is_over ? "the best is" : "next is",
             tuner->settings[kind->setting].name);
}

static int IsOn(Tuner* tuner) {
  if (tuner->is_on >= 0) return tuner->is_on;
  tuner->is_on = tuner->shared != NULL && atomic_load(&tuner->shared->attached) == tuner->nranks;
  if (tuner->shared != NULL) shm_unlink(tuner->path);
  return tuner->is_on;
}

static int GetCollInfo(void* context, int operation, size_t bytes, int operations, float** costs,
                       int algorithms, int protocols, int is_registered, int* channels) {
  (void)operations, (void)is_registered, (void)channels;
  Tuner* const tuner = context;
  if (tuner == NULL || operation != kAllReduce || !IsOn(tuner)) return kSuccess;
  int size_class = 0;  // NCCL Pulse's
  for (size_t most = 4096; bytes > most && size_class < kSizeClasses - 1; most *= 4) ++size_class;
  Kind* const kind = &tuner->kinds[size_class];
  const uint64_t block = kind->calls / kBlock;
  if (!kind->is_over && kind->calls % kBlock == 0 && block < kBlocks) {
    uint64_t decision = 0;
    const uint64_t proposal = Propose(tuner, kind, bytes);
    // It is the whole message: no ordering is needed.
    if (atomic_compare_exchange_strong(&tuner->shared->decisions[size_class][block], &decision,
                                       proposal)) {
      decision = proposal;
    }
    Follow(tuner, kind, size_class, decision);
  } else if (block == kBlocks) {
    kind->is_over = 1;
    kind->setting = kind->best;
  }
  ++kind->calls;
  const Setting* const setting = &tuner->settings[kind->setting];
  if (setting->algorithm < 0 || setting->algorithm >= algorithms || setting->protocol >= protocols)
    return kSuccess;
  float* const cost = (float*)costs + setting->algorithm * protocols + setting->protocol;
  if (*cost >= 0) *cost = 0;  // -1: NCCL cannot do it
  return kSuccess;
}

static int Finalize(void* context) {
  Tuner* const tuner = context;
  if (tuner != NULL && tuner->shared != NULL) {
    shm_unlink(tuner->path);  // if there was no AllReduce
    munmap(tuner->shared, sizeof(Shared));
  }
  free(tuner);
  return kSuccess;
}

// NCCL's ncclTuner_v5_t.
__attribute__((visibility("default"))) const struct {
  const char* name;
  int (*init)(void**, uint64_t, size_t, size_t, Logger*, void*, void*);
  int (*get_coll_info)(void*, int, size_t, int, float**, int, int, int, int*);
  int (*finalize)(void*);
} ncclTunerPlugin_v5 = {"NCCL Pulse example", Init, GetCollInfo, Finalize};
