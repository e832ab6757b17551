import { readFileSync } from "node:fs";
import { messageOf } from "../../base/error-message.ts";
import type { ListenOptions } from "../../server/listen/listen.ts";
import type { ExecServerTransport } from "../../server/listen/listen-url.ts";
import { UsageError } from "../command.ts";

/** What a server says that takes tokens in the clear. */
export const PLAIN_TOKENS =
  "tokens reach this server in the clear: everybody on the way can read them; speak TLS with --tls-cert and --tls-key, or listen on a loopback address behind something that does";

/** Read now, so that a wrong path is told before anything begins, and again whenever it is asked for. */
export function tlsFromFlags(
  transport: ExecServerTransport,
  certFile: string | undefined,
  keyFile: string | undefined,
): ListenOptions["tls"] {
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile === undefined || keyFile === undefined)
    throw new UsageError("--tls-cert and --tls-key go together");
  if (transport.type !== "websocket")
    throw new UsageError("--tls-cert and --tls-key are for --listen ws://IP:PORT");
  const read = () => ({ cert: readPem(certFile, "--tls-cert"), key: readPem(keyFile, "--tls-key") });
  const check = () => {
    const material = read();
    try {
      process.getBuiltinModule("node:tls").createSecureContext(material);
    } catch (cause) {
      throw new Error(`--tls-cert ${certFile} and --tls-key ${keyFile} cannot be used: ${messageOf(cause)}`, {
        cause,
      });
    }
    return material;
  };
  check();
  return check;
}

function readPem(path: string, flag: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new Error(`cannot read ${flag} ${path}: ${messageOf(cause)}`, { cause });
  }
  if (!text.includes("-----BEGIN ")) throw new Error(`${flag} ${path} holds no PEM (-----BEGIN ...)`);
  return text;
}
