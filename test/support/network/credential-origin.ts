import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingHttpHeaders } from "node:http";
import { createServer } from "node:https";
import { join, normalize } from "node:path";
import { CertificateAuthority } from "../../../src/network/credentials/certificate-authority.ts";

export const SECRET = "sk-live-0123456789abcdef";

/** An HTTPS server on loopback, and a host directory with a secret file and the certificate of its authority. */
export interface CredentialOrigin extends Disposable {
  port: number;
  requests: { host: string; path: string; headers: IncomingHttpHeaders }[];
  /** Home of the server. Not below /tmp, which sandboxes replace. */
  home: string;
  secretFile: string;
  /** Environment of a server that trusts the origin. */
  env: Record<string, string>;
}

/**
 * Serves `/echo` with the received headers, `/redirect` to the same server under its address, and the files below `root`
 * to clients with the secret as their Basic password.
 */
export async function startOrigin(root?: string): Promise<CredentialOrigin> {
  const authority = CertificateAuthority.create();
  const home = mkdtempSync("/var/tmp/procwire-credentials-");
  const secretFile = join(home, "secrets", "key");
  mkdirSync(join(home, "secrets"), { mode: 0o700 });
  writeFileSync(secretFile, `${SECRET}\n`);
  const certificate = join(home, "origin.pem");
  writeFileSync(certificate, authority.certificate);
  const requests: CredentialOrigin["requests"] = [];
  const contexts = (name: string) => authority.contextFor(name);
  const server = createServer({
    SNICallback: (name, done) => done(null, contexts(name)),
    // Clients send no name for an address.
    ...authority.leafFor("127.0.0.1"),
  });
  server.on("request", (request, response) => {
    const { url = "/", headers } = request;
    requests.push({ host: headers.host ?? "", path: url, headers });
    if (url === "/echo") {
      response.end(`${JSON.stringify(headers)}\n`);
      return;
    }
    if (url === "/redirect") {
      response.writeHead(302, { location: `https://127.0.0.1:${port}/echo` }).end();
      return;
    }
    const [, encoded = ""] = /^Basic (.*)$/.exec(headers.authorization ?? "") ?? [];
    if (Buffer.from(encoded, "base64").toString() !== `user:${SECRET}`) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="x"' }).end();
      return;
    }
    try {
      response.end(readFileSync(join(root ?? home, normalize(new URL(url, "https://x").pathname))));
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  return {
    ...{ port, requests, home, secretFile },
    env: { HOME: home, NODE_EXTRA_CA_CERTS: certificate, PROCWIRE_RUNTIME_DIR: join(home, "run") },
    [Symbol.dispose]: () => {
      server.closeAllConnections();
      server.close();
      rmSync(home, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}
