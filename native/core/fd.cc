// Up to 1 MiB of a pipe lies in the kernel, so that a fast writer is stopped less often; but kernel memory is not free.
#include "core/fd.h"

#include <fcntl.h>

#include <atomic>

namespace procwire {
namespace {

constexpr uint64_t kGrowAfterBytes = 256 * 1024;
constexpr int kGrownPipeBytes = 1024 * 1024;
// 16 MiB for the whole program.
constexpr int kGrownPipesBudget = 16;

std::atomic<int> grownPipes{0};

}  // namespace

void growPipe(int fd, uint64_t carriedBytes, bool& grown) {
  if (grown || carriedBytes < kGrowAfterBytes) return;
  if (grownPipes.fetch_add(1) < kGrownPipesBudget && fcntl(fd, F_SETPIPE_SZ, kGrownPipeBytes) >= 0) grown = true;
  else grownPipes--;
}

void giveBackPipe(bool& grown) {
  if (grown) grownPipes--;
  grown = false;
}

}  // namespace procwire
