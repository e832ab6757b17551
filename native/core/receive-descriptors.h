// Receives bytes and the descriptors that came with them (SCM_RIGHTS).
#ifndef PROCWIRE_CORE_RECEIVE_DESCRIPTORS_H
#define PROCWIRE_CORE_RECEIVE_DESCRIPTORS_H

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "core/fd.h"

namespace procwire {

struct ReceivedDescriptors {
  std::vector<UniqueFd> fds;
  // The kernel has dropped descriptors, for example because the descriptor table is full.
  bool isTruncated = false;
};

// Reads like read(2), without blocking. `received` owns the descriptors.
ssize_t receiveDescriptors(int socket, char* bytes, size_t length, ReceivedDescriptors& received);

}  // namespace procwire

#endif
