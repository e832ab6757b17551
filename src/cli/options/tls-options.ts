import { readFileSync } from "node:fs";
import { FlagError } from "../../base/flag-error.ts";
import type { ListenOptions } from "../../server/listen/listen.ts";
import type { ExecServerTransport } from "../../server/listen/listen-url.ts";
import { UsageError } from "../command.ts";

/** Warning of a server that accepts tokens without TLS. */
export const PLAINTEXT_TOKEN_WARNING =
  "tokens are sent in plain text and can be read on the network; use --tls-cert and --tls-key, or listen on a loopback address behind a TLS proxy";

/** Files of `--tls-…` flags. */
export interface TlsFlags {
  certFile: string | undefined;
  keyFile: string | undefined;
  clientCaFile: string | undefined;
  clientCrlFile: string | undefined;
  operatorSubjects: string[];
}

/** Reads the files immediately, so that a wrong path fails at startup, and again on each reload. */
export function tlsFromFlags(
  transport: ExecServerTransport,
  { certFile, keyFile, clientCaFile, clientCrlFile, operatorSubjects }: TlsFlags,
): Pick<ListenOptions, "tls" | "clientCertificates"> {
  if (clientCaFile === undefined && (clientCrlFile !== undefined || operatorSubjects.length > 0))
    throw new UsageError("--tls-client-crl and --operator-subject require --tls-client-ca");
  if (clientCaFile !== undefined && certFile === undefined)
    throw new UsageError("--tls-client-ca requires --tls-cert and --tls-key");
  if (certFile === undefined && keyFile === undefined) return {};
  if (certFile === undefined || keyFile === undefined)
    throw new UsageError("--tls-cert and --tls-key require each other");
  if (transport.type !== "websocket") throw new UsageError("--tls-cert and --tls-key require --listen ws://IP:PORT");
  const load = () => {
    const material = { cert: readPem(certFile, "--tls-cert"), key: readPem(keyFile, "--tls-key") };
    try {
      process.getBuiltinModule("node:tls").createSecureContext(material);
    } catch (cause) {
      throw new FlagError("--tls-cert", `${certFile} with --tls-key ${keyFile}`, cause);
    }
    if (clientCaFile === undefined) return material;
    return { ...material, ca: readClientCa(clientCaFile), crl: readClientCrl(clientCrlFile) };
  };
  load();
  if (clientCaFile === undefined) return { tls: load };
  const files = [clientCaFile, clientCrlFile].filter((path) => path !== undefined);
  return { tls: load, clientCertificates: { files, operatorSubjects } };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** Checks each certificate: OpenSSL ignores an unusable one, and no client could then connect. */
function readClientCa(path: string): string {
  const text = readPem(path, "--tls-client-ca");
  const { X509Certificate } = process.getBuiltinModule("node:crypto");
  try {
    const certificates = (text.match(CERTIFICATE) ?? []).map((pem) => new X509Certificate(pem));
    if (certificates.length === 0) throw new Error("contains no certificate");
    const leaf = certificates.find(({ ca }) => !ca);
    if (leaf) throw new Error(`\`${leaf.subject}\` is not the certificate of an authority`);
  } catch (cause) {
    throw new FlagError("--tls-client-ca", path, cause);
  }
  return text;
}

function readClientCrl(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  const crl = readPem(path, "--tls-client-crl");
  try {
    process.getBuiltinModule("node:tls").createSecureContext({ crl });
  } catch (cause) {
    throw new FlagError("--tls-client-crl", path, cause);
  }
  return crl;
}

function readPem(path: string, flag: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new FlagError(flag, path, cause);
  }
  if (!text.includes("-----BEGIN ")) throw new FlagError(flag, path, "contains no PEM (-----BEGIN ...)");
  return text;
}
