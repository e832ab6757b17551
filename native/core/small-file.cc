#include "core/small-file.h"

#include <errno.h>
#include <unistd.h>

namespace procwire {

bool readSmallFile(int directory, const char* path, std::string& text) {
  text.clear();
  const int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char buffer[4096];
  ssize_t length;
  do {
    length = read(fd, buffer, sizeof buffer);
    if (length > 0) text.append(buffer, static_cast<size_t>(length));
  } while (length > 0 || (length < 0 && errno == EINTR));
  close(fd);
  return length == 0;
}

}  // namespace procwire
