// The process table, read from /proc fast enough to be queried before every kill.
#ifndef PROCWIRE_PROCESS_PROCESS_TABLE_H
#define PROCWIRE_PROCESS_PROCESS_TABLE_H

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace procwire {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  uint64_t startTime = 0;  // clock ticks since boot
  bool zombie = false;
};

// Reads one process. Returns false if it does not exist.
bool readEntry(pid_t pid, ProcessEntry& entry);

// Returns the pids of a process's children without reading their entries. Skips children of the threads `except`.
std::vector<pid_t> childPids(pid_t pid, const std::vector<pid_t>& except = {});

// Returns all descendants of a process, nearest first.
std::vector<ProcessEntry> descendantsOf(pid_t pid);

// Reports whether the process has one of these pipes or this terminal (-1: none) open.
bool hasStdioOpen(pid_t pid, const std::vector<uint64_t>& pipes, int pts);

// Signals this process, never a later one with the same pid. Returns 0 or the errno.
int signalProcess(pid_t pid, uint64_t startTime, int signal);

// Reparents orphaned descendants to this process instead of init. Returns 0 or the errno.
int setSubreaper(bool on);

// Reaps one dead child. Returns false if it is alive or not a child.
bool reapChild(pid_t pid);

}  // namespace procwire

#endif
