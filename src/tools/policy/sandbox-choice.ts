import { posix } from "node:path";
import { uriFromPath } from "../../protocol/path-uri.ts";
import type { Access } from "../../sandbox/bubblewrap.ts";
import { PROTECTED_NAMES } from "./protected-names.ts";

/** The sandbox of a model's commands. */
export type SandboxChoice =
  | { type: "none" }
  | {
      type: "bubblewrap";
      /** Absolute paths on the host of the processes. All other paths are read-only. */
      writableRoots: readonly string[];
      /** Names in each writable root that stay read-only, even if they do not exist yet. Default: `PROTECTED_NAMES`. */
      protectedNames?: readonly string[];
      /** Paths that are inaccessible in the sandbox. */
      deniedRoots?: readonly string[];
      network: boolean;
      /**
       * True: each command has an empty /tmp. `shared`: all commands of these tools share one /tmp, which is removed when
       * the tools are closed. With a root inside /tmp, each command has its own. Default: true.
       */
      privateTmp?: boolean | "shared";
    };

/** The host does not support the chosen sandbox. */
export class SandboxUnavailableError extends Error {
  override readonly name = "SandboxUnavailableError";
}

/** Throws if the host does not support the chosen sandbox. Commands never run with a weaker sandbox. */
export function requireSupportedSandbox(choice: SandboxChoice, hostSandboxes: readonly string[] | undefined): void {
  if (choice.type === "none" || hostSandboxes?.includes(choice.type)) return;
  const supportText = !hostSandboxes
    ? "the host does not report its sandboxes"
    : `the host supports ${hostSandboxes.length > 0 ? hostSandboxes.join(", ") : "none"}`;
  throw new SandboxUnavailableError(`sandbox \`${choice.type}\` is not available: ${supportText}`);
}

/**
 * Converts a choice to a sandbox request, or null for none. `tmpName` names the shared /tmp. The host of the processes
 * resolves the request, because only it has the programs, links and descriptors that the sandbox needs.
 */
export function toSandboxRequest(choice: SandboxChoice, tmpName?: string): Record<string, unknown> | null {
  if (choice.type === "none") return null;
  const { writableRoots, protectedNames = PROTECTED_NAMES, deniedRoots = [], privateTmp = true } = choice;
  const protectedPaths = writableRoots.flatMap((root) => protectedNames.map((name) => posix.join(root, name)));
  const entries = [
    { path: { type: "special", value: { kind: "root" } }, access: "read" },
    ...writableRoots.map((path) => toEntry(path, "write")),
    ...protectedPaths.map((path) => toEntry(path, "read")),
    ...deniedRoots.map((path) => toEntry(path, "deny")),
  ];
  return {
    permissions: {
      type: "managed",
      file_system: { type: "restricted", entries },
      network: choice.network ? "enabled" : "restricted",
    },
    windowsSandboxLevel: "disabled",
    privateTmp: privateTmp !== false,
    // A server without support for `sharedTmp` gives each command its own /tmp.
    sharedTmp: privateTmp === "shared" ? tmpName : undefined,
    // Only the host knows the user's home directory and PROCWIRE_HOME.
    protectStartUpFiles: true,
  };
}

const toEntry = (path: string, access: Access) => ({
  path: { type: "path", path: uriFromPath(path) },
  access,
});
