import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { isWithin, type SandboxRoot } from "./bubblewrap.ts";
import { directoryIdentity } from "./pinned-roots.ts";
import { unenforceableSandbox } from "./sandbox-request.ts";

interface RecordedIdentity {
  directory: string;
  identity: string;
  /** True once the directory was inside a writable root: a sandboxed command may have moved it with the file. */
  isExposed: boolean;
}

/** Host files that are hidden from all sandboxes: listening sockets, tokens, secrets. */
export class MaskedPaths {
  readonly #paths: readonly string[];
  readonly #firstIdentities = new Map<string, RecordedIdentity>();

  constructor(paths: readonly string[]) {
    this.#paths = paths;
  }

  /** Returns the masks for a sandbox with these writable roots. Throws if a sandboxed command may have moved a file. */
  roots(writable: readonly SandboxRoot[]): SandboxRoot[] {
    return this.#paths.flatMap((path) => {
      const root = maskFor(path);
      const first = this.#firstIdentities.get(path) ?? (root ? recordIdentity(root.path) : null);
      if (first) {
        this.#firstIdentities.set(path, first);
        if (first.isExposed && directoryIdentity(first.directory) !== first.identity)
          throw unenforceableSandbox({
            reason: `directory \`${first.directory}\`, which contains a server file, was moved or replaced`,
          });
        first.isExposed ||= writable.some((root) => isWithin(first.directory, root.path));
      }
      return root ? [root] : [];
    });
  }
}

/** Returns the mask of a path; null if the path is missing or inaccessible. */
export function maskFor(path: string): SandboxRoot | null {
  try {
    const real = realpathSync(path);
    return { path: real, access: "deny", kind: statSync(real).isDirectory() ? "directory" : "file" };
  } catch {
    return null;
  }
}

function recordIdentity(real: string): RecordedIdentity {
  const directory = dirname(real);
  return { directory, identity: directoryIdentity(directory), isExposed: false };
}
