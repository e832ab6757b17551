// The keeper's children that are neither its server nor kept: orphans, since everything whose parent has died below the
// keeper becomes its child.
#ifndef PROCWIRE_KEEPER_CHILDREN_H
#define PROCWIRE_KEEPER_CHILDREN_H

// Reaps dead children that nobody waits for; some may have to wait until nothing is being started (`reap_rest`).
void reap_strangers(void);
void reap_rest(void);

// Ends every child that is neither the server nor of a kept process, with all below it.
void sweep_unkept(void);

#endif
