import { FlagError } from "../base/flag-error.ts";
import type { PeerAddress } from "../base/peer-address.ts";
import type { ResolvedSandbox, RestoredSandbox, SandboxResources } from "../exec/backend/resolved-sandbox.ts";
import type { SandboxedStartParams } from "../local/start-confinement.ts";
import type { MaskedPaths } from "../sandbox/masked-paths.ts";
import type { SandboxedPeerDetector } from "../sandbox/sandboxed-peers.ts";
import type { ExposedSecret } from "../sandbox/secret-directory.ts";
import { landlockSupportIfAvailable, listenerSupportIfAvailable } from "./native-support.ts";
import { credentialDirectoryPath, runtimeDirectoryPath } from "./runtime-directory.ts";

/**
 * The local sandbox, shared by servers, local tools and the library: masked paths, and the check that rejects connections
 * from sandboxed processes. The first sandboxed start imports the sandbox code.
 */
export interface LocalSandbox {
  resolve(request: unknown, start: SandboxedStartParams): Promise<ResolvedSandbox>;
  /** Takes over the sandbox of a persistent process with this pid. */
  restore(resources: SandboxResources, pid: number): Promise<RestoredSandbox>;
  maskedPaths(): Promise<MaskedPaths>;
  /** Returns true if the peer is sandboxed; false at once while no sandboxed process has network access. */
  isSandboxedPeer(peer: PeerAddress): false | Promise<boolean>;
}

export interface LocalSandboxOptions {
  /** Token, secret, key and socket files of this process, hidden from sandboxed processes. */
  masked?: readonly string[] | undefined;
  /** Further files of this process, which may be in the directory of a secret. */
  ownFiles?: readonly string[] | undefined;
  /** Rejects every sandbox. */
  noSandbox?: boolean | undefined;
  /** Process whose end makes shared directories stale: the supervisor of this process. Default: this process. */
  ownerPid?: number | undefined;
}

/** Returns the directories with sockets, tokens and the authority's key of all servers of this user. */
const maskedDirectories = () => [runtimeDirectoryPath(), credentialDirectoryPath()];

export function localSandbox(options: LocalSandboxOptions = {}): LocalSandbox {
  const { masked = [], ownFiles, noSandbox, ownerPid = process.pid } = options;
  let paths: MaskedPaths | null = null;
  let peers: SandboxedPeerDetector | null = null;
  const maskedPaths = async () => {
    const { MaskedPaths } = await import("../sandbox/masked-paths.ts");
    paths ??= new MaskedPaths(masked, { own: ownFiles, directories: maskedDirectories(), noSandbox });
    return paths;
  };
  const load = async () => {
    const [{ resolveSandbox, restoreSandbox }, { SandboxedPeerDetector }, { sharedTmpDirectories }, masks] =
      await Promise.all([
        import("../sandbox/resolve-sandbox.ts"),
        import("../sandbox/sandboxed-peers.ts"),
        import("../sandbox/shared-tmp.ts"),
        maskedPaths(),
      ]);
    sharedTmpDirectories.setOwner(ownerPid);
    const onNetworkAllowed = (pid: number) => {
      peers ??= new SandboxedPeerDetector();
      return peers.add(pid);
    };
    const sandboxHost = {
      maskedPaths: masks,
      onNetworkAllowed,
      listenerSupport: listenerSupportIfAvailable(),
      landlock: landlockSupportIfAvailable(),
    };
    return {
      resolve: (request: unknown, start: SandboxedStartParams) => resolveSandbox(request, start, sandboxHost),
      restore: (resources: SandboxResources, pid: number) => restoreSandbox(resources, pid, sandboxHost),
    };
  };
  return {
    maskedPaths,
    resolve: async (request, start) => (await load()).resolve(request, start),
    restore: async (resources, pid) => (await load()).restore(resources, pid),
    isSandboxedPeer: (peer) => peers?.isSandboxed(peer) ?? false,
  };
}

/**
 * Returns the secrets that a sandboxed command could read after their replacement. Sandboxed starts are rejected then.
 * Returns none if no sandbox works on this host. `own` lists further files of this process.
 */
export async function exposedSecrets(secrets: readonly string[], own: readonly string[]): Promise<ExposedSecret[]> {
  if (secrets.length === 0) return [];
  const { isBubblewrapInstalled, sandboxPrograms } = await import("../sandbox/sandbox-probe.ts");
  if (!isBubblewrapInstalled()) return [];
  const { findExposedSecrets } = await import("../sandbox/secret-directory.ts");
  const exposed = findExposedSecrets(secrets, own, maskedDirectories());
  // The probe runs a process, so it runs last.
  return exposed.length > 0 && sandboxPrograms() !== null ? exposed : [];
}

/** Throws a FlagError that names the flag of the first exposed secret. `flags` is keyed by path. */
export function rejectExposed(
  [first]: readonly ExposedSecret[],
  flags: Readonly<Record<string, string>>,
  remedy: string,
): void {
  if (first) throw new FlagError(flags[first.path] ?? "secret file", first.path, `${first.exposure}; or ${remedy}`);
}
