import { readFileSync } from "node:fs";
import { errorMessage } from "../../base/error-message.ts";
import type { ListenOptions } from "../../server/listen/listen.ts";
import type { ExecServerTransport } from "../../server/listen/listen-url.ts";
import { UsageError } from "../command.ts";

/** Warning of a server that accepts tokens without TLS. */
export const PLAINTEXT_TOKEN_WARNING =
  "tokens are sent in plain text and can be read on the network; use --tls-cert and --tls-key, or listen on a loopback address behind a TLS proxy";

/** Reads the files immediately, so that a wrong path fails at startup, and again on each reload. */
export function tlsFromFlags(
  transport: ExecServerTransport,
  certFile: string | undefined,
  keyFile: string | undefined,
): ListenOptions["tls"] {
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile === undefined || keyFile === undefined)
    throw new UsageError("--tls-cert and --tls-key require each other");
  if (transport.type !== "websocket") throw new UsageError("--tls-cert and --tls-key require --listen ws://IP:PORT");
  const load = () => {
    const material = { cert: readPem(certFile, "--tls-cert"), key: readPem(keyFile, "--tls-key") };
    try {
      process.getBuiltinModule("node:tls").createSecureContext(material);
    } catch (cause) {
      throw new Error(`cannot use --tls-cert ${certFile} with --tls-key ${keyFile}: ${errorMessage(cause)}`, {
        cause,
      });
    }
    return material;
  };
  load();
  return load;
}

function readPem(path: string, flag: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new Error(`cannot read ${flag} ${path}: ${errorMessage(cause)}`, { cause });
  }
  if (!text.includes("-----BEGIN ")) throw new Error(`${flag} ${path} contains no PEM (-----BEGIN ...)`);
  return text;
}
