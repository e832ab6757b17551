/** On whose behalf a connection acts. Sessions belong to a principal, and nobody else learns of them. */
export interface Principal {
  /** `local`, `token`, `operator`, `uid:1000`, `jwt` for signed tokens without a subject, `jwt:SUBJECT` for the others; `share:NUMBER` by a share token. */
  readonly id: string;
  /** An operator sees and may take over the sessions of all principals. */
  readonly role: "user" | "operator";
  /** It came by a share token: there is one process for it, in this role, and nothing else. */
  readonly share?: Share | undefined;
}

export interface Share {
  readonly handle: string;
  readonly role: "viewer" | "driver";
  /** By the server's monotonic clock. */
  readonly untilMs: number;
}

/** Every client of a server without authentication, and the program that started this one, over stdio or inside it. */
export const LOCAL: Principal = { id: "local", role: "user" };

export function mayUse(principal: Principal, ownerId: string): boolean {
  return principal.role === "operator" || principal.id === ownerId;
}
