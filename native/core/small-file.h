// Files of the kernel's own (/proc, cgroups): read whole, however many reads it takes.
#ifndef PROCWIRE_SMALL_FILE_H
#define PROCWIRE_SMALL_FILE_H

#include <fcntl.h>

#include <string>

namespace procwire {

// False when it cannot be read to its end. The directory is AT_FDCWD for a path from the root.
bool readSmallFile(int directory, const char* path, std::string& text);

}  // namespace procwire

#endif
