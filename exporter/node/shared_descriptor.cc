#include "exporter/node/shared_descriptor.h"

#include <pthread.h>

namespace nccl_pulse {
namespace {

// Constant initialization and no destructor: a fork may come at any moment of the process' life.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

}  // namespace

void ForkGuard::Lock() { pthread_mutex_lock(&g_mutex); }
void ForkGuard::Unlock() { pthread_mutex_unlock(&g_mutex); }
void ForkGuard::ResetInChild() { g_mutex = PTHREAD_MUTEX_INITIALIZER; }

}  // namespace nccl_pulse
