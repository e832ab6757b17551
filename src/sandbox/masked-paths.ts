import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { SandboxRoot } from "./bubblewrap.ts";
import { isInside } from "./bubblewrap.ts";
import { folderIdentity } from "./pinned-roots.ts";
import { cannotEnforce } from "./sandbox-request.ts";

interface FirstSeen {
  folder: string;
  identity: string;
  /** Some walls let their command write around it: the folder may have been moved since, and the file with it. */
  exposed: boolean;
}

/** Files of a host that nobody behind its walls may reach: sockets it listens on, tokens, secrets. */
export class HiddenFiles {
  readonly #paths: readonly string[];
  readonly #first = new Map<string, FirstSeen>();

  constructor(paths: readonly string[]) {
    this.#paths = paths;
  }

  /** Where they are now, for walls whose command may write to these roots. Throws when a walled command may have moved one. */
  roots(writable: readonly SandboxRoot[]): SandboxRoot[] {
    return this.#paths.flatMap((path) => {
      const root = hidden(path);
      const first = this.#first.get(path) ?? (root ? firstSeen(root.path) : null);
      if (first) {
        this.#first.set(path, first);
        if (first.exposed && folderIdentity(first.folder) !== first.identity)
          throw cannotEnforce({
            reason: `the folder \`${first.folder}\`, which holds a file of the server, was moved or replaced`,
          });
        first.exposed ||= writable.some(
          ({ path: around }) => around === first.folder || isInside(first.folder, around),
        );
      }
      return root ? [root] : [];
    });
  }
}

/** What covers a path; null where nothing is, or nothing that we could reach. */
export function hidden(path: string): SandboxRoot | null {
  try {
    const real = realpathSync(path);
    return { path: real, access: "deny", kind: statSync(real).isDirectory() ? "directory" : "file" };
  } catch {
    return null;
  }
}

function firstSeen(real: string): FirstSeen {
  const folder = dirname(real);
  return { folder, identity: folderIdentity(folder), exposed: false };
}
