import type { Clock } from "../../async/clock.ts";
import type { PeerCertificate } from "../../connection/accepted-socket.ts";
import { LiveCredential } from "./credential.ts";
import type { AuthResult } from "./websocket-auth.ts";

/** Settings of client certificates (`--tls-client-ca`). */
export interface ClientCertificates {
  /** Files of the authority and of revoked certificates, read again when they change. */
  files: readonly string[];
  /** Subjects that are operators, as in the id of their principal. */
  operatorSubjects: readonly string[];
}

/** Authenticates TLS clients by their certificates, and ends their connections with the certificates. */
export class CertificateAuth {
  readonly #clock: Clock;
  readonly #operators: ReadonlySet<string>;
  readonly #used = new Set<LiveCredential>();
  /** Rejects every request without a certificate, apart from the health endpoints. */
  readonly isRequired: boolean;

  constructor(clock: Clock, { operatorSubjects }: ClientCertificates, isRequired: boolean) {
    this.#clock = clock;
    this.#operators = new Set(operatorSubjects);
    this.isRequired = isRequired;
  }

  /** Returns why a request with this certificate is rejected before its token is checked, or null. */
  reject(certificate: PeerCertificate | undefined): string | null {
    if (certificate?.type === "valid") return null;
    if (certificate?.type === "invalid") return `client certificate rejected: ${certificate.reason}`;
    return this.isRequired ? "client certificate required; pass --tls-cert and --tls-key (tlsCert, tlsKey)" : null;
  }

  /** Returns the principal of a valid certificate: `cert:SUBJECT`. */
  authorize({ subject, expiresAtMs }: Extract<PeerCertificate, { type: "valid" }>): AuthResult {
    const credential = new LiveCredential({
      clock: this.#clock,
      expiresAtMs,
      expiredReason: "the client certificate has expired",
      onUsed: (used) => void this.#used.add(used),
      onUnused: (unused) => void this.#used.delete(unused),
    });
    const role = this.#operators.has(subject) ? "operator" : "user";
    return { type: "admitted", principal: { id: `cert:${subject}`, role, credential } };
  }

  /**
   * Closes the connections of all certificates after a change of the authority or of the revoked certificates. Clients
   * connect again and resume their sessions; the new connection checks the certificate.
   */
  closeAll(): void {
    for (const credential of [...this.#used]) credential.end("the accepted client certificates changed; connect again");
  }
}
