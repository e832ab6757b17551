// What /proc says of processes, fast enough to be asked before every kill.
#ifndef PROCWIRE_PROCESS_TREE_H
#define PROCWIRE_PROCESS_TREE_H

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
  uint64_t startTime = 0;  // clock ticks since the machine's start
  bool zombie = false;
};

// False when it is gone.
bool readEntry(pid_t pid, ProcessEntry& entry);

// The pids of a process's children, without reading each. Children of the threads `except` are left out.
std::vector<pid_t> childPids(pid_t pid, const std::vector<pid_t>& except = {});

// All below a process, nearest first.
std::vector<ProcessEntry> descendantsOf(pid_t pid);

// Does it have one of these pipes open, or this terminal (-1: none)?
bool holdsEnds(pid_t pid, const std::vector<uint64_t>& pipes, int pts);

// Signals this process and no later one with its pid. 0, or the errno.
int signalProcess(pid_t pid, uint64_t startTime, int signal);

// Orphans among our descendants come to us instead of to init. 0, or the errno.
int setSubreaper(bool on);

// Reaps one dead child; false when it lives, or is not ours.
bool reapChild(pid_t pid);

}  // namespace procwire

#endif
