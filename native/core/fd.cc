#include "core/fd.h"

#include <fcntl.h>

#include <atomic>

namespace procwire {
namespace {

constexpr uint64_t kEnlargeAfterBytes = 256 * 1024;
// Fast writers block less often with a larger pipe.
constexpr int kEnlargedPipeBytes = 1024 * 1024;
// Budget for the whole process: 16 MiB, because kernel memory is limited.
constexpr int kMaxEnlargedPipes = 16;

std::atomic<int> enlargedPipes{0};

}  // namespace

bool openPipe(UniqueFd& readEnd, UniqueFd& writeEnd) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return false;
  readEnd.reset(ends[0]);
  writeEnd.reset(ends[1]);
  return true;
}

UniqueDirectory listingOf(UniqueFd directory) {
  UniqueDirectory listing(directory ? fdopendir(directory.get()) : nullptr);
  // closedir closes the descriptor.
  if (listing) directory.release();
  return listing;
}

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
