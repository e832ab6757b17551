// File descriptor ownership and the process-wide budget for enlarged pipes.
#ifndef PROCWIRE_CORE_FD_H
#define PROCWIRE_CORE_FD_H

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

namespace procwire {

// Owner of one descriptor, or of none (-1). Closes it on destruction and leaves errno unchanged.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

  // Gives up ownership.
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

  void reset(int fd = -1) {
    const int old = fd_;
    fd_ = fd;
    if (old < 0) return;
    const int err = errno;
    close(old);
    errno = err;
  }

 private:
  int fd_ = -1;
};

// Opens a pipe with close-on-exec. Returns false with errno set.
bool openPipe(UniqueFd& readEnd, UniqueFd& writeEnd);

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};
// An open directory listing, closed on destruction.
using UniqueDirectory = std::unique_ptr<DIR, DirectoryCloser>;
// Lists an open directory. Returns null with errno set if there is none, or if it cannot be listed.
UniqueDirectory listingOf(UniqueFd directory);

// Enlarges a pipe that has carried enough bytes, unless the process-wide budget is exhausted.
void enlargePipe(int fd, uint64_t carriedBytes, bool& isEnlarged);
void releasePipeBudget(bool& isEnlarged);

}  // namespace procwire

#endif
