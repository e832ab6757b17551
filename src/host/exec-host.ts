import { realpathSync } from "node:fs";
import { resolve } from "node:path";
import type { PeerAddress } from "../base/peer-address.ts";
import type { ConnectionState } from "../client/exec-server-client.ts";
import { filterSecrets, type SecretFilterOptions } from "../exec/backend/secret-filter.ts";
import type { ExecBackend } from "../exec/exec-process.ts";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import type { CredentialDefinition } from "../protocol/network/credential-definition.ts";
import { pathFromUri } from "../protocol/path-uri.ts";
import { connectServer, type ServerAddress } from "./connect-server.ts";
import { localSandboxes, remoteSandboxes } from "./host-sandboxes.ts";
import { makeProcessPrivate } from "./native-support.ts";

/** A host that runs commands: the local one or a server. Nothing is opened before `connect`. */
export interface ExecHost {
  /** The name in error messages. */
  name: string;
  connect(): Promise<ConnectedHost>;
}

export interface ConnectedHost {
  backend: ExecBackend;
  /** Absolute default working directory on that host. */
  cwd: string;
  /** Null for the local host, whose shell the caller chooses. */
  shell: string | null;
  /** The sandboxes that the host reports. */
  sandboxes: readonly string[];
  /** Returns an absolute path without links, which sandboxes require; a server's path is returned unchanged. */
  realPath(path: string): string;
  /** Returns true if the peer of a connection to this process is or may be a process that this host sandboxed. */
  isSandboxedPeer(peer: PeerAddress): false | Promise<boolean>;
  /** False once the connection is lost permanently. */
  isAlive(): boolean;
  /** The URL at which users can attach to the processes; null if there is none. */
  attachUrl: string | null;
  /** How often a lost session was replaced by a new one. */
  reopenCount(): number;
  close(): Promise<void>;
}

export interface HostOptions {
  /** Working directory; defaults to that of this process or of the server. */
  cwd?: string | undefined;
  /** Selects the host secrets that commands receive. */
  secretFilter: SecretFilterOptions;
}

export interface ServerHostOptions extends HostOptions {
  /** Opens a new session if the server lost the session. For a single agent; a fan-out retries on other hosts. */
  reopens: boolean;
}

export interface LocalExecHostOptions extends HostOptions {
  /** Token and secret files of this process, hidden from sandboxed processes. */
  masked: readonly string[];
  /** Credentials that commands may name. */
  credentials?: readonly CredentialDefinition[] | undefined;
  /** Runs the processes behind an in-process server on a Unix socket, so that users can attach. */
  isAttachable?: boolean | undefined;
}

export function localHost({ isAttachable = false, ...options }: LocalExecHostOptions): ExecHost {
  const { cwd, secretFilter, masked, credentials = [] } = options;
  return {
    name: "this machine",
    async connect() {
      makeProcessPrivate();
      if (isAttachable) return (await import("./attachable-host.ts")).connectAttachableHost(options);
      const [{ createLocalBackend }, { localSandbox }, { secretFilesOf }] = await Promise.all([
        import("./create-local-backend.ts"),
        import("./local-sandbox.ts"),
        import("./network/local-network.ts"),
      ]);
      const sandbox = localSandbox({ masked: [...masked, ...secretFilesOf(credentials)] });
      const backend = createLocalBackend({ resolveSandbox: sandbox.resolve, credentials });
      return {
        backend: filterSecrets(backend, secretFilter),
        cwd: cwd ?? process.cwd(),
        shell: null,
        sandboxes: localSandboxes(),
        realPath: (path) => realpathSync(resolve(path)),
        isSandboxedPeer: sandbox.isSandboxedPeer,
        isAlive: () => true,
        attachUrl: null,
        reopenCount: () => 0,
        close: () => backend[Symbol.asyncDispose](),
      };
    },
  };
}

export function serverHost(address: ServerAddress, options: ServerHostOptions): ExecHost {
  return { name: address.url, connect: () => connectHost(address, options) };
}

async function connectHost(address: ServerAddress, options: ServerHostOptions): Promise<ConnectedHost> {
  let isEnded = false;
  let isLost = false;
  let reopenCount = 0;
  const onState = ({ type }: ConnectionState) => {
    if (type === "connected" && isLost) reopenCount++;
    isLost = type === "sessionLost" || (isLost && type !== "connected");
    if (type === "disconnected") isEnded = true;
  };
  const client = await connectServer(address, onState, { newSession: options.reopens });
  let info: EnvironmentInfo;
  try {
    info = await client.info();
  } catch (error) {
    await client.close();
    throw error;
  }
  return {
    ...remoteHost(client.backend, info, options),
    attachUrl: address.url,
    // An agent without other hosts gets the error of the call instead.
    isAlive: () => options.reopens || !isEnded,
    reopenCount: () => reopenCount,
    close: () => client.close(),
  };
}

/** The host as the server describes it. */
function remoteHost(backend: ExecBackend, info: EnvironmentInfo, { cwd, secretFilter }: HostOptions) {
  return {
    backend: filterSecrets(backend, secretFilter),
    cwd: cwd ?? (info.cwd ? pathFromUri(info.cwd) : "/"),
    shell: info.shell.path,
    sandboxes: remoteSandboxes(info),
    realPath: (path: string) => path,
    // Only the server knows which processes it sandboxed, and it may run on this host.
    isSandboxedPeer: async (peer: PeerAddress) =>
      (await import("../sandbox/sandboxed-peers.ts")).isInOtherNamespace(peer),
  };
}
