// Enlarges pipes to 1 MiB, so that fast writers block less often. Kernel memory is limited, hence the budget.
#include "core/fd.h"

#include <fcntl.h>

#include <atomic>

namespace procwire {
namespace {

constexpr uint64_t kEnlargeAfterBytes = 256 * 1024;
constexpr int kEnlargedPipeBytes = 1024 * 1024;
// Budget for the whole process: 16 MiB.
constexpr int kMaxEnlargedPipes = 16;

std::atomic<int> enlargedPipes{0};

}  // namespace

void enlargePipe(int fd, uint64_t carriedBytes, bool& isEnlarged) {
  if (isEnlarged || carriedBytes < kEnlargeAfterBytes) return;
  if (enlargedPipes.fetch_add(1) < kMaxEnlargedPipes && fcntl(fd, F_SETPIPE_SZ, kEnlargedPipeBytes) >= 0)
    isEnlarged = true;
  else enlargedPipes--;
}

void releasePipeBudget(bool& isEnlarged) {
  if (isEnlarged) enlargedPipes--;
  isEnlarged = false;
}

}  // namespace procwire
