// Service state, sent from the supervisor to the outer watchdog. The outer watchdog is the main process of the unit and
// forwards the state to systemd (sd-notify.c), so that systemd can ignore all other processes of the service
// (NotifyAccess=main).
#ifndef PROCWIRE_PROGRAMS_SERVICE_STATE_H
#define PROCWIRE_PROGRAMS_SERVICE_STATE_H

// Environment variable with the write end of the watchdog's pipe. A state is one byte.
#define SERVICE_STATE_FD "PROCWIRE_SERVICE_STATE_FD"

enum service_state { SERVICE_READY = 'r', SERVICE_RELOADING = 'l', SERVICE_STOPPING = 's' };

// Removes the pipe from the environment, so that no other process inherits it.
void open_service_state(void);
// Write end of the pipe; -1: none.
int service_state_fd(void);
// Continues with the pipe of the supervisor that this one replaces.
void restore_service_state(int fd);
// No-op without a service manager.
void report_service_state(enum service_state state);

#endif
