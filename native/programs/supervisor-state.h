// State that a supervisor passes to its successor when it is replaced in place: a memfd that the new executable
// inherits together with the descriptors that it names.
#ifndef PROCWIRE_PROGRAMS_SUPERVISOR_STATE_H
#define PROCWIRE_PROGRAMS_SUPERVISOR_STATE_H

// Writes the state of this supervisor. Returns the memfd, or -1 with errno set.
int save_state(void);
// Sets or clears the close-on-exec flag of all descriptors that the state names, and of the memfd.
void set_state_inherited(int state, int is_inherited);
// Takes over the state. Returns NULL, or the reason why it cannot be used.
const char* load_state(int state);

#endif
