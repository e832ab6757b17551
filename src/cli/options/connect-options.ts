import { readFileSync } from "node:fs";
import { errorMessage } from "../../base/error-message.ts";
import { parseObject } from "../../base/json-fields.ts";
import type { ConnectionState, ExecServerClient } from "../../client/exec-server-client.ts";
import { ConnectUrlError, parseConnectUrl } from "../../client/node/connect-url.ts";
import { connectServer, type ServerAddress } from "../../host/connect-server.ts";
import { type PartialValues, UsageError } from "../command.ts";
import { DEFAULT_URL } from "../default-url.ts";
import { exitWhenIdle } from "../support/forced-exit.ts";
import { parseAmount } from "./parse-number.ts";

/** Options of commands that can use a server. */
export const SERVER_OPTIONS = {
  connect: { type: "string" },
  "token-file": { type: "string" },
  "tls-ca": { type: "string" },
  "tls-cert": { type: "string" },
  "tls-key": { type: "string" },
  "insecure-plain-token": { type: "boolean" },
  wait: { type: "string" },
} as const;

/** Options of commands that connect to one server. */
export const CONNECT_OPTIONS = {
  ...SERVER_OPTIONS,
  session: { type: "string" },
  install: { type: "boolean" },
  "install-from": { type: "string" },
  yes: { type: "boolean" },
} as const;

/** The `--connect` value for this host; overrides PROCWIRE_CONNECT. */
const LOCAL_TARGET = "local";

export type ConnectValues = PartialValues<typeof CONNECT_OPTIONS>;

/** Returns the validated server URL of `--connect` or PROCWIRE_CONNECT, or undefined for this host. */
export function resolveServerUrl(connect: string | undefined): string | undefined {
  const named = connect ?? (process.env.PROCWIRE_CONNECT || undefined);
  if (named === undefined || named === LOCAL_TARGET) return undefined;
  try {
    return parseConnectUrl(named).url;
  } catch (error) {
    if (!(error instanceof ConnectUrlError)) throw error;
    throw new UsageError(
      `unsupported ${connect === undefined ? "PROCWIRE_CONNECT" : "--connect URL"} ${error.problem}`,
    );
  }
}

/** Returns the server URLs of PROCWIRE_CONNECT, for a command that accepts several servers. */
export function serversFromEnvironment(): string[] {
  const { PROCWIRE_CONNECT } = process.env;
  return PROCWIRE_CONNECT ? [PROCWIRE_CONNECT] : [];
}

/** Returns the server URL for a command that requires a server. */
export function requireServerUrl(connect: string | undefined): string {
  if (connect === LOCAL_TARGET) throw new UsageError("--connect local: this command requires a server");
  return resolveServerUrl(connect) ?? DEFAULT_URL;
}

export function serverAddress(url: string, values: ConnectValues): ServerAddress {
  const [certFile, keyFile] = [values["tls-cert"], values["tls-key"]];
  if ((certFile === undefined) !== (keyFile === undefined))
    throw new UsageError("--tls-cert and --tls-key require each other");
  return {
    url,
    readTlsCert: certFile === undefined ? undefined : () => readOptionFile(certFile, "--tls-cert"),
    readTlsKey: keyFile === undefined ? undefined : () => readOptionFile(keyFile, "--tls-key"),
    readToken: () => readToken(values["token-file"]),
    resumeSessionId: values.session,
    tlsCa: values["tls-ca"] === undefined ? undefined : readOptionFile(values["tls-ca"], "--tls-ca"),
    insecurePlainToken: values["insecure-plain-token"],
    startTimeoutMs: waitMs(values.wait),
  };
}

export async function connectTo(
  url: string,
  values: ConnectValues,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const address = serverAddress(url, values);
  exitWhenIdle();
  const from = values["install-from"];
  if (values.install !== true) {
    if (values.yes === true) throw new UsageError("--yes requires --install");
    if (from !== undefined) throw new UsageError("--install-from requires --install");
    return connectServer(address, onConnectionState);
  }
  const { connectOrInstall } = await import("../support/remote-install.ts");
  return connectOrInstall(address, { assumeYes: values.yes === true, from }, onConnectionState);
}

function waitMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const seconds = parseAmount(text);
  if (seconds === null) throw new UsageError(`--wait \`${text}\` must be a number of seconds`);
  return seconds * 1000;
}

/** Reads a token as Latin-1, the encoding of HTTP headers, without trailing white space, as servers do. */
function readToken(path: string | undefined): string | undefined {
  const { PROCWIRE_TOKEN } = process.env;
  const text =
    path !== undefined
      ? readOptionFile(path, "--token-file", "latin1")
      : PROCWIRE_TOKEN && Buffer.from(PROCWIRE_TOKEN).toString("latin1");
  // The file of a server may be JSON with the scope of the token.
  const { token } = (text?.startsWith("{") && parseObject(text)) || {};
  return typeof token === "string" ? token : text ? text.replace(/[\t-\r ]+$/, "") : undefined;
}

function readOptionFile(path: string, flag: string, encoding: BufferEncoding = "utf8"): string {
  try {
    return readFileSync(path, encoding);
  } catch (cause) {
    throw new Error(`${flag}: ${errorMessage(cause)}`, { cause });
  }
}
