/** The identity that a connection acts for. Only operators see the sessions of other principals. */
export interface Principal {
  /** `local`, `token`, `operator`, `uid:UID`, `jwt` (no subject), `jwt:SUBJECT` or `share:NUMBER` (share token). */
  readonly id: string;
  /** An operator sees, and can take over, the sessions of all principals. */
  readonly role: "user" | "operator";
  /**
   * Set if the connection authenticated with a share token: it may use this process, in this role, and nothing else.
   */
  readonly share?: ShareGrant | undefined;
}

export interface ShareGrant {
  readonly handle: string;
  readonly role: "viewer" | "driver";
  /** Expiry by the server's monotonic clock, in milliseconds. */
  readonly expiresAtMs: number;
}

/** The principal of every client of a server without authentication, of stdio, and of in-process clients. */
export const LOCAL_PRINCIPAL: Principal = { id: "local", role: "user" };

export function canAccess(principal: Principal, ownerId: string): boolean {
  return principal.role === "operator" || principal.id === ownerId;
}
