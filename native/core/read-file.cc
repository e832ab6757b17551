#include "core/read-file.h"

#include <errno.h>
#include <unistd.h>

#include "core/fd.h"

namespace procwire {

bool readWholeFile(int directory, const char* path, std::string& text) {
  text.clear();
  const UniqueFd fd(openat(directory, path, O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  char buffer[4096];
  ssize_t length;
  do {
    length = read(fd.get(), buffer, sizeof buffer);
    if (length > 0) text.append(buffer, static_cast<size_t>(length));
  } while (length > 0 || (length < 0 && errno == EINTR));
  return length == 0;
}

}  // namespace procwire
