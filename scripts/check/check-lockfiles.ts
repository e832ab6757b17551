import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

interface LockEntry {
  integrity?: string;
  resolved?: string;
  /** Whether the package is bundled in another package, whose checksum covers it. */
  inBundle?: boolean;
}

/**
 * Returns the problems of all lockfiles below `root`. Every entry needs a checksum and names no registry, so that any
 * registry installs the packages that were reviewed.
 */
export function lockfileProblems(root = "."): string[] {
  const files = globSync(["package-lock.json", "{interop,prebuild}/**/package-lock.json"], {
    cwd: root,
    exclude: ["**/node_modules/**"],
  });
  return files.flatMap((file) => {
    const { packages }: { packages: Record<string, LockEntry> } = JSON.parse(readFileSync(join(root, file), "utf8"));
    return Object.entries(packages).flatMap(([path, entry]) => {
      if (entry.resolved !== undefined) return [`${file}: entry \`${path}\` names a registry`];
      // The first entry is the package itself.
      const isChecked = path === "" || entry.integrity !== undefined || entry.inBundle === true;
      return isChecked ? [] : [`${file}: entry \`${path}\` has no checksum`];
    });
  });
}
