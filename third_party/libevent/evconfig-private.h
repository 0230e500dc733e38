/* What every source file of libevent includes before anything else, for Linux with glibc. */
#ifndef NCCL_PULSE_THIRD_PARTY_LIBEVENT_EVCONFIG_PRIVATE_H_
#define NCCL_PULSE_THIRD_PARTY_LIBEVENT_EVCONFIG_PRIVATE_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

/* libevent's own arc4random is static and has the name under which glibc 2.36 declares its own.
 * With glibc's declaration read first, renaming what follows keeps the two apart. */
#include <stdlib.h>

#define arc4random libevent_arc4random
#define arc4random_buf libevent_arc4random_buf

#endif /* NCCL_PULSE_THIRD_PARTY_LIBEVENT_EVCONFIG_PRIVATE_H_ */
