// Reads files of the kernel (/proc, cgroups), which may need several reads.
#ifndef PROCWIRE_CORE_READ_FILE_H
#define PROCWIRE_CORE_READ_FILE_H

#include <fcntl.h>

#include <string>

namespace procwire {

// Reads a whole file. Returns false if it cannot be read to its end. `directory` is AT_FDCWD for absolute paths.
bool readWholeFile(int directory, const char* path, std::string& text);

}  // namespace procwire

#endif
