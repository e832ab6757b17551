import type { ResolvedSandbox } from "../exec/backend/resolved-sandbox.ts";
import type { StartParams } from "../exec/exec-process.ts";
import type { MaskedPaths } from "../sandbox/masked-paths.ts";
import type { SandboxedPeerDetector } from "../sandbox/sandboxed-peers.ts";
import type { PeerAddress } from "../server/host-services.ts";

/**
 * The local sandbox, shared by servers, local tools and the library: masked paths, and the check that rejects connections
 * from sandboxed processes. The first sandboxed start imports the sandbox code.
 */
export interface LocalSandbox {
  resolve(request: unknown, start: StartParams): Promise<ResolvedSandbox>;
  maskedPaths(): Promise<MaskedPaths>;
  /** Returns true if the peer is sandboxed; false at once while no sandboxed process has network access. */
  isSandboxedPeer(peer: PeerAddress): false | Promise<boolean>;
}

/** `masked` lists token, secret, key and socket files of this process, hidden from sandboxed processes. */
export function localSandbox(masked: readonly string[] = []): LocalSandbox {
  let paths: MaskedPaths | null = null;
  let peers: SandboxedPeerDetector | null = null;
  const maskedPaths = async () => {
    const { MaskedPaths } = await import("../sandbox/masked-paths.ts");
    paths ??= new MaskedPaths(masked);
    return paths;
  };
  return {
    maskedPaths,
    resolve: async (request, start) => {
      const [{ resolveSandbox }, { SandboxedPeerDetector }, masks] = await Promise.all([
        import("../sandbox/resolve-sandbox.ts"),
        import("../sandbox/sandboxed-peers.ts"),
        maskedPaths(),
      ]);
      const onNetworkAllowed = (pid: number) => {
        peers ??= new SandboxedPeerDetector();
        return peers.add(pid);
      };
      return resolveSandbox(request, start, { maskedPaths: masks, onNetworkAllowed });
    },
    isSandboxedPeer: (peer) => peers?.isSandboxed(peer) ?? false,
  };
}
