// What systemd is told. Does nothing without a service manager, or with one that is gone.
#ifndef PROCWIRE_SERVICE_MANAGER_H
#define PROCWIRE_SERVICE_MANAGER_H

void tell_ready(void);
void tell_reloading(void);
void tell_stopping(void);

#endif
