// Hides the memory and the environment of a process from other processes of the same user. Included by C and C++.
#ifndef PROCWIRE_PROGRAMS_PRIVATE_PROCESS_H
#define PROCWIRE_PROGRAMS_PRIVATE_PROCESS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <unistd.h>

// Reports whether a variable may contain a secret. False matches cost nothing, so the words are matched anywhere.
static inline int may_be_secret(const char* variable) {
  const char* const words[] = {"KEY", "SECRET", "TOKEN", "PASS", "CREDENTIAL", "AUTH", "DSN", "CONNECTION_STRING"};
  const char* end = strchr(variable, '=');
  if (!end) return 0;
  for (size_t at = 0; at < sizeof words / sizeof *words; at++) {
    const size_t length = strlen(words[at]);
    for (const char* from = variable; from + length <= end; from++)
      if (strncasecmp(from, words[at], length) == 0) return 1;
  }
  // An address with a user name and a password.
  const char* address = strstr(end, "://");
  return address && strchr(address, '@') != NULL;
}

// Reads the bounds of the initial environment block, which /proc/PID/environ shows. Returns -1 if they are unknown.
static inline int read_environment_bounds(uintptr_t* start, uintptr_t* end) {
  char text[2048];
  FILE* file = fopen("/proc/self/stat", "re");
  const size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[length] = 0;
  // The process name in parentheses may contain anything. The state after it is field 3; the bounds are fields 50
  // and 51.
  const char* field = strrchr(text, ')');
  for (int number = 2; field && number < 50; number++) field = strchr(field + 1, ' ');
  unsigned long long from = 0, to = 0;
  if (!field || sscanf(field, "%llu %llu", &from, &to) != 2 || from == 0 || to <= from) return -1;
  *start = (uintptr_t)from;
  *end = (uintptr_t)to;
  return 0;
}

// Moves values that may be secret to the heap, and overwrites them in the initial environment block. To be called
// before other threads read the environment.
static inline void clear_initial_secrets(void) {
  uintptr_t start, end;
  if (read_environment_bounds(&start, &end) < 0) return;
  char* variable = (char*)start;
  while ((uintptr_t)variable < end) {
    const size_t length = strlen(variable);
    if (may_be_secret(variable)) {
      char* copy = NULL;
      int is_used = 0;
      for (char** at = environ; at && *at; at++) {
        if (*at != variable) continue;
        is_used = 1;
        copy = strdup(variable);
        if (copy) *at = copy;
      }
      char* value = strchr(variable, '=') + 1;
      if (copy || !is_used) memset(value, 0, strlen(value));
    }
    variable += length + 1;
  }
}

// Prevents other processes of this user from reading the memory, the environment and the descriptors of this process,
// and from attaching to it. Programs that it executes are not affected. The kernel then writes no core dump.
static inline void make_process_private(void) {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  clear_initial_secrets();
}

#endif
